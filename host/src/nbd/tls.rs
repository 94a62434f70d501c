//! TLS for NBD: rustls with ring, certificates under the file names that qemu and libnbd use.
//!
//! | file | what | who needs it |
//! |---|---|---|
//! | `ca-cert.pem` | who signs | both sides |
//! | `ca-key.pem` | the signer's key | nobody at run time |
//! | `server-cert.pem`, `server-key.pem` | the server | the daemon |
//! | `client-cert.pem`, `client-key.pem` | a client | clients, when the server verifies them |
//!
//! No pre-shared keys: rustls has none.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why TLS could not be set up: what was tried, on which file, and why it failed.
#[derive(Debug)]
pub struct TlsError {
    /// The file.
    pub path: PathBuf,
    /// One sentence.
    pub message: String,
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.message)
    }
}

impl std::error::Error for TlsError {}

fn error(path: &Path, message: impl fmt::Display) -> TlsError {
    TlsError { path: path.to_owned(), message: message.to_string() }
}

#[cfg(feature = "tls")]
mod real {
    use std::fs::OpenOptions;
    use std::io::{Read, Write};
    use std::os::fd::RawFd;
    use std::os::unix::fs::OpenOptionsExt;
    use std::sync::Arc;

    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
        KeyUsagePurpose,
    };
    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::server::WebPkiClientVerifier;
    use rustls::{RootCertStore, ServerConfig, ServerConnection};

    use super::super::socket::Raw;
    use super::*;

    /// Encrypted bytes that wait for the socket, at most; more than one full flush of a connection's replies waits
    /// in its buffers instead.
    const UNSENT_MAX: usize = 256 << 10;

    /// What every TLS connection of a daemon shares.
    #[derive(Clone)]
    pub struct TlsServer(Arc<ServerConfig>);

    impl fmt::Debug for TlsServer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("TlsServer")
        }
    }

    fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let all: Vec<_> = CertificateDer::pem_file_iter(path)
            .and_then(|certs| certs.collect())
            .map_err(|e| error(path, format_args!("cannot read the certificate: {e}")))?;
        if all.is_empty() {
            return Err(error(path, "holds no certificate"));
        }
        Ok(all)
    }

    /// The certificates of `ca-cert.pem` as roots.
    pub fn roots(dir: &Path) -> Result<RootCertStore, TlsError> {
        let path = dir.join("ca-cert.pem");
        let mut roots = RootCertStore::empty();
        for cert in certificates(&path)? {
            roots.add(cert).map_err(|e| error(&path, e))?;
        }
        Ok(roots)
    }

    impl TlsServer {
        /// From a directory with qemu's file names; with `verify` only clients whose certificate `ca-cert.pem`
        /// signed get through.
        pub fn load(dir: &Path, verify: bool) -> Result<Self, TlsError> {
            let provider = Arc::new(ring::default_provider());
            let chain = certificates(&dir.join("server-cert.pem"))?;
            let path = dir.join("server-key.pem");
            let key = PrivateKeyDer::from_pem_file(&path)
                .map_err(|e| error(&path, format_args!("cannot read the key: {e}")))?;
            let builder = ServerConfig::builder_with_provider(provider.clone())
                .with_safe_default_protocol_versions()
                .map_err(|e| error(dir, e))?;
            let builder = if verify {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(dir)?), provider)
                    .build()
                    .map_err(|e| error(&dir.join("ca-cert.pem"), e))?;
                builder.with_client_cert_verifier(verifier)
            } else {
                builder.with_no_client_auth()
            };
            let config = builder.with_single_cert(chain, key).map_err(|e| error(&path, e))?;
            Ok(TlsServer(Arc::new(config)))
        }

        /// A connection that waits for the client's hello.
        pub fn accept(&self) -> io::Result<Tls> {
            let mut tls = ServerConnection::new(self.0.clone()).map_err(io::Error::other)?;
            tls.set_buffer_limit(Some(UNSENT_MAX));
            Ok(Tls(tls))
        }
    }

    /// One connection's TLS state.
    #[derive(Debug)]
    pub struct Tls(ServerConnection);

    impl Tls {
        pub(crate) fn is_handshaking(&self) -> bool {
            self.0.is_handshaking()
        }
        pub(crate) fn wants_write(&self) -> bool {
            self.0.wants_write()
        }
        pub(crate) fn close_notify(&mut self) {
            self.0.send_close_notify();
        }

        /// One step: what can be sent and received now.
        pub(crate) fn handshake(&mut self, fd: RawFd) -> io::Result<()> {
            let result = loop {
                self.flush_some(fd)?;
                if !self.0.is_handshaking() {
                    break Ok(());
                }
                match self.0.read_tls(&mut Raw(fd)) {
                    Ok(0) => break Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break Ok(()),
                    Err(e) => break Err(e),
                }
                if let Err(e) = self.0.process_new_packets() {
                    let _ = self.flush_some(fd);
                    break Err(io::Error::new(io::ErrorKind::InvalidData, e));
                }
            };
            self.flush_some(fd)?;
            result
        }

        fn flush_some(&mut self, fd: RawFd) -> io::Result<()> {
            match self.flush(fd) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
                other => other,
            }
        }

        /// Sends all records; WouldBlock when the socket does not take them all.
        pub(crate) fn flush(&mut self, fd: RawFd) -> io::Result<()> {
            while self.0.wants_write() {
                if self.0.write_tls(&mut Raw(fd))? == 0 {
                    return Err(io::ErrorKind::WriteZero.into());
                }
            }
            Ok(())
        }

        /// Plaintext into `buf`; `Ok(0)` is the end, also without a close_notify.
        pub(crate) fn recv(&mut self, fd: RawFd, buf: &mut [u8]) -> io::Result<usize> {
            let mut filled = 0usize;
            loop {
                let rest = buf.get_mut(filled..).unwrap_or_default();
                match self.0.reader().read(rest) {
                    Ok(0) => return Ok(filled),
                    Ok(n) => {
                        filled = filled.saturating_add(n);
                        if filled < buf.len() {
                            continue;
                        }
                        return Ok(filled);
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(filled),
                    Err(e) => return Err(e),
                }
                match self.0.read_tls(&mut Raw(fd)) {
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock && filled > 0 => return Ok(filled),
                    Err(e) => return Err(e),
                }
                if let Err(e) = self.0.process_new_packets() {
                    let _ = self.flush_some(fd);
                    return Err(io::Error::new(io::ErrorKind::InvalidData, e));
                }
            }
        }

        /// Takes plaintext as far as there is room for its records.
        pub(crate) fn send(&mut self, fd: RawFd, bytes: &[u8]) -> io::Result<usize> {
            let mut taken = 0usize;
            while let Some(rest) = bytes.get(taken..).filter(|rest| !rest.is_empty()) {
                let n = self.0.writer().write(rest)?;
                taken = taken.saturating_add(n);
                if n < rest.len() {
                    self.flush_some(fd)?;
                    if n == 0 && self.0.wants_write() {
                        break;
                    }
                }
            }
            Ok(taken)
        }
    }

    /// Writes a CA, a server and a client certificate with keys, all under qemu's names. Existing files are never
    /// overwritten. `names` are the host names and addresses of the server; `localhost` is always one.
    pub fn init(dir: &Path, names: &[String]) -> Result<(), TlsError> {
        let failed = |e: rcgen::Error| error(dir, format_args!("cannot make a certificate: {e}"));
        const FILES: [&str; 6] =
            ["ca-cert.pem", "ca-key.pem", "server-cert.pem", "server-key.pem", "client-cert.pem", "client-key.pem"];
        for file in FILES {
            if dir.join(file).exists() {
                return Err(error(&dir.join(file), "exists already; move it away or use another directory"));
            }
        }
        let mut params = CertificateParams::new(Vec::new()).map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, "braid CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(failed)?).map_err(failed)?;

        let mut server_names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        server_names.extend(names.iter().filter(|name| !server_names.contains(name)).cloned().collect::<Vec<_>>());
        let leaf = |names: Vec<String>, common: &str, usage| {
            let mut params = CertificateParams::new(names)?;
            params.distinguished_name.push(DnType::CommonName, common);
            params.key_usages = vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyEncipherment];
            params.extended_key_usages = vec![usage];
            params.use_authority_key_identifier_extension = true;
            let key = KeyPair::generate()?;
            let cert = params.signed_by(&key, &ca)?;
            Ok::<_, rcgen::Error>((cert.pem(), key.serialize_pem()))
        };
        let server = leaf(server_names, "braid server", ExtendedKeyUsagePurpose::ServerAuth).map_err(failed)?;
        let client = leaf(Vec::new(), "braid client", ExtendedKeyUsagePurpose::ClientAuth).map_err(failed)?;
        let texts = [ca.pem(), ca.key().serialize_pem(), server.0, server.1, client.0, client.1];
        for (file, text) in FILES.iter().zip(texts) {
            let path = dir.join(file);
            let mode = if file.ends_with("key.pem") { 0o600 } else { 0o644 };
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(mode)
                .open(&path)
                .and_then(|mut f| f.write_all(text.as_bytes()).and_then(|()| f.sync_all()))
                .map_err(|e| error(&path, format_args!("cannot write: {e}")))?;
        }
        Ok(())
    }
}

#[cfg(feature = "tls")]
pub use real::{Tls, TlsServer, init, roots};

#[cfg(not(feature = "tls"))]
mod absent {
    use std::os::fd::RawFd;

    use super::*;

    /// Built without TLS: there is none of these.
    #[derive(Clone, Debug)]
    pub enum TlsServer {}

    /// Built without TLS: there is none of these.
    #[derive(Debug)]
    pub enum Tls {}

    impl TlsServer {
        /// Says that this build has no TLS.
        pub fn load(dir: &Path, _verify: bool) -> Result<Self, TlsError> {
            Err(error(dir, "this build has no TLS"))
        }
        /// Never called.
        pub fn accept(&self) -> io::Result<Tls> {
            match *self {}
        }
    }

    impl Tls {
        pub(crate) fn is_handshaking(&self) -> bool {
            match *self {}
        }
        pub(crate) fn wants_write(&self) -> bool {
            match *self {}
        }
        pub(crate) fn close_notify(&mut self) {
            match *self {}
        }
        pub(crate) fn handshake(&mut self, _fd: RawFd) -> io::Result<()> {
            match *self {}
        }
        pub(crate) fn flush(&mut self, _fd: RawFd) -> io::Result<()> {
            match *self {}
        }
        pub(crate) fn recv(&mut self, _fd: RawFd, _buf: &mut [u8]) -> io::Result<usize> {
            match *self {}
        }
        pub(crate) fn send(&mut self, _fd: RawFd, _bytes: &[u8]) -> io::Result<usize> {
            match *self {}
        }
    }

    /// Says that this build has no TLS.
    pub fn init(dir: &Path, _names: &[String]) -> Result<(), TlsError> {
        Err(error(dir, "this build has no TLS"))
    }
}

#[cfg(not(feature = "tls"))]
pub use absent::{Tls, TlsServer, init};
