//! TLS: required means required.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use braid_host::nbd::acceptor::Config;
use braid_host::nbd::client::{Answer, Client, Wish, greet, option};
use braid_host::nbd::handshake::TlsMode;
use braid_host::nbd::proto::{self, cmd, opt, rep};
use braid_host::nbd::tls::{TlsServer, init, roots};
use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::world::*;
use super::{run, tool};

const MIB: u64 = 1 << 20;

fn daemon(tls: TlsMode, verify: bool) -> (Daemon, tempfile::TempDir) {
    let pki = tempfile::tempdir().unwrap();
    init(pki.path(), &["pool.example".to_owned()]).unwrap();
    let tls_server = Some(TlsServer::load(pki.path(), verify).unwrap());
    let config = Config { tls, tls_server, ..Default::default() };
    (Daemon::start(config, vec![export("disk", 1, 64 * MIB)], MEMORY, Order::Backwards), pki)
}

fn client_config(pki: &Path, with_certificate: bool) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots(pki).unwrap());
    Arc::new(if with_certificate {
        let chain = vec![CertificateDer::from_pem_file(pki.join("client-cert.pem")).unwrap()];
        let key = PrivateKeyDer::from_pem_file(pki.join("client-key.pem")).unwrap();
        builder.with_client_auth_cert(chain, key).unwrap()
    } else {
        builder.with_no_client_auth()
    })
}

#[test]
fn init_writes_private_keys_once() {
    let pki = tempfile::tempdir().unwrap();
    init(pki.path(), &[]).unwrap();
    for (file, mode) in [("ca-key.pem", 0o600), ("server-key.pem", 0o600), ("client-key.pem", 0o600)] {
        assert_eq!(std::fs::metadata(pki.path().join(file)).unwrap().permissions().mode() & 0o777, mode);
    }
    let before = std::fs::read(pki.path().join("ca-cert.pem")).unwrap();
    assert!(init(pki.path(), &[]).is_err());
    assert_eq!(std::fs::read(pki.path().join("ca-cert.pem")).unwrap(), before);
}

#[test]
fn data_goes_through_tls_at_depth() {
    for tls in [TlsMode::Allow, TlsMode::Require] {
        let (daemon, pki) = daemon(tls, false);
        let config = client_config(pki.path(), false);
        let mut client =
            Client::connect_tls(&daemon.socket(), "disk", Wish::default(), config, "pool.example").unwrap();
        assert!(client.structured && client.allocation);
        let at = |i: u64| i * 300_000 + i;
        for i in 0..40 {
            client.send_write(i, 0, at(i), &stamp(at(i), 250_000, 1));
        }
        for _ in 0..40 {
            assert_eq!(client.recv().unwrap().error, 0);
        }
        for i in 0..40 {
            client.send_read(i, at(i), 250_000);
        }
        let mut answer = Answer::default();
        for _ in 0..40 {
            client.recv_into(&mut answer).unwrap();
            assert!(answer.data == stamp(at(answer.cookie), 250_000, 1));
        }
        for i in 0..200 {
            assert_eq!(client.read(i * 512, 512).unwrap().error, 0);
        }
        let big = stamp(0, 32 << 20, 2);
        assert_eq!(client.write(cmd::FLAG_FUA, 1, &big).unwrap().error, 0);
        assert!(client.read(1, 32 << 20).unwrap().data == big);
        client.disconnect().unwrap();
        eventually("it is gone", || daemon.connections.load(std::sync::atomic::Ordering::SeqCst) == 0);
    }
}

#[test]
fn allow_still_serves_in_the_clear_and_require_does_not() {
    let (allowing, _pki) = daemon(TlsMode::Allow, false);
    assert_eq!(Client::connect(&allowing.socket(), "disk", Wish::default()).unwrap().read(0, 1).unwrap().error, 0);
    let (requiring, _pki) = daemon(TlsMode::Require, false);
    for wish in
        [Wish::default(), Wish { structured: false, ..Default::default() }, Wish { old: true, ..Default::default() }]
    {
        assert!(Client::connect(&requiring.socket(), "disk", wish).is_err());
    }
    let mut stream = UnixStream::connect(requiring.socket()).unwrap();
    greet(&mut stream).unwrap();
    assert_eq!(option(&mut stream, opt::LIST, &[]).unwrap()[0].0, rep::ERR_TLS_REQD);
    assert_eq!(requiring.delivered.load(std::sync::atomic::Ordering::SeqCst), 0);
}

#[test]
fn bytes_in_the_clear_behind_starttls_end_the_connection() {
    let (daemon, pki) = daemon(TlsMode::Require, false);
    let mut stream = UnixStream::connect(daemon.socket()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    greet(&mut stream).unwrap();
    let mut bytes = Vec::new();
    proto::put_option(&mut bytes, opt::STARTTLS, &[]);
    proto::put_option(&mut bytes, opt::STRUCTURED_REPLY, &[]);
    stream.write_all(&bytes).unwrap();
    let mut back = Vec::new();
    let _ = stream.read_to_end(&mut back);
    assert!(back.is_empty(), "not even STARTTLS is answered");
    // Later than that it is no TLS record.
    let mut stream = UnixStream::connect(daemon.socket()).unwrap();
    greet(&mut stream).unwrap();
    assert_eq!(option(&mut stream, opt::STARTTLS, &[]).unwrap()[0].0, rep::ACK);
    stream.write_all(&bytes).unwrap();
    let _ = stream.read_to_end(&mut back);
    assert_eq!(daemon.delivered.load(std::sync::atomic::Ordering::SeqCst), 0);
    // And the server lives.
    let config = client_config(pki.path(), false);
    Client::connect_tls(&daemon.socket(), "disk", Wish::default(), config, "localhost").unwrap();
}

#[test]
fn clients_are_verified_when_asked_for() {
    let (daemon, pki) = daemon(TlsMode::Require, true);
    let connect = |config| {
        Client::connect_tls(&daemon.socket(), "disk", Wish::default(), config, "localhost")
            .and_then(|mut c| c.read(0, 1))
    };
    assert!(connect(client_config(pki.path(), true)).is_ok());
    assert!(connect(client_config(pki.path(), false)).is_err(), "no certificate");
    let stranger = tempfile::tempdir().unwrap();
    init(stranger.path(), &[]).unwrap();
    for file in ["client-cert.pem", "client-key.pem"] {
        std::fs::copy(stranger.path().join(file), pki.path().join(file)).unwrap();
    }
    assert!(connect(client_config(pki.path(), true)).is_err(), "signed by someone else");
}

#[test]
fn nbdcopy_speaks_tls() {
    if !tool("nbdcopy", "nbdcopy_speaks_tls") {
        return;
    }
    let (daemon, pki) = daemon(TlsMode::Require, true);
    let from = daemon.dir.path().join("from");
    let data = stamp(0, 64 << 20, 8);
    std::fs::write(&from, &data).unwrap();
    let uri = format!(
        "nbds+unix://localhost/disk?socket={}&tls-certificates={}",
        daemon.socket().display(),
        pki.path().display()
    );
    run(Command::new("nbdcopy").arg(&from).arg(&uri));
    assert!(daemon.rams.lock().unwrap().values().next().unwrap().data == data);
    let back = daemon.dir.path().join("back");
    run(Command::new("nbdcopy").arg(&uri).arg(&back));
    assert!(std::fs::read(&back).unwrap() == data);
}
