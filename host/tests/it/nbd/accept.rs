//! Who gets in and where the daemon listens.

use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

use braid_host::nbd::acceptor::{Config, Listen};
use braid_host::nbd::client::{Client, Wish};
use braid_host::nbd::{Acceptor, TlsMode};

use super::world::*;

#[test]
fn the_socket_file_is_private_and_goes_with_the_daemon() {
    let mut daemon = Daemon::simple(4096);
    let path = daemon.socket();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    daemon.acceptor.take().unwrap().stop();
    assert!(!path.exists());
}

#[test]
fn a_dead_daemons_socket_is_replaced_and_a_live_ones_is_not() {
    let daemon = Daemon::simple(4096);
    let acceptor = daemon.acceptor.as_ref().unwrap();
    let refused = acceptor.add_listener(Listen::Unix(daemon.socket())).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::AddrInUse);
    Client::connect(&daemon.socket(), "disk", Wish::default()).unwrap();

    let stale = daemon.dir.path().join("stale");
    drop(UnixListener::bind(&stale).unwrap());
    acceptor.add_listener(Listen::Unix(stale.clone())).unwrap();
    Client::connect(&stale, "disk", Wish::default()).unwrap();

    let file = daemon.dir.path().join("file");
    std::fs::write(&file, "precious").unwrap();
    assert!(acceptor.add_listener(Listen::Unix(file.clone())).is_err());
    assert_eq!(std::fs::read(&file).unwrap(), b"precious");
}

#[test]
fn tcp_is_for_this_machine_unless_tls_is_required() {
    let daemon = Daemon::simple(1 << 20);
    let acceptor = daemon.acceptor.as_ref().unwrap();
    for outside in ["0.0.0.0:0", "192.0.2.1:10809", "[::]:0"] {
        let refused = acceptor.add_listener(Listen::Tcp(outside.parse().unwrap())).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::PermissionDenied, "{outside}");
    }
    let address = acceptor.add_listener(Listen::Tcp("127.0.0.1:0".parse().unwrap())).unwrap().unwrap();
    let mut client = Client::connect_tcp(address, "disk", Wish::default()).unwrap();
    client.write(0, 5, b"over tcp").unwrap();
    assert_eq!(client.read(5, 8).unwrap().data, b"over tcp");
}

#[test]
fn tls_without_certificates_does_not_start() {
    let config = Config { tls: TlsMode::Require, ..Default::default() };
    assert!(Acceptor::start(config, std::sync::Arc::new(Table(vec![])), Box::new(|_| ())).is_err());
}

#[test]
fn only_listening_stream_sockets_are_adopted() {
    let daemon = Daemon::simple(4096);
    let acceptor = daemon.acceptor.as_ref().unwrap();
    let dir = daemon.dir.path();
    let connected = UnixStream::pair().unwrap().0;
    let wrong: [OwnedFd; 4] = [
        std::fs::File::open("/dev/null").unwrap().into(),
        connected.into(),
        UnixDatagram::bind(dir.join("datagram")).unwrap().into(),
        std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into(),
    ];
    for fd in wrong {
        assert!(acceptor.add_listener(Listen::Adopted(fd)).is_err());
    }
    let path = dir.join("activated");
    acceptor.add_listener(Listen::Adopted(UnixListener::bind(&path).unwrap().into())).unwrap();
    Client::connect(&path, "disk", Wish::default()).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = acceptor.add_listener(Listen::Adopted(listener.into())).unwrap().unwrap();
    Client::connect_tcp(address, "disk", Wish::default()).unwrap();
}

#[test]
fn more_connections_than_allowed_are_turned_away() {
    let config = Config { negotiated_max: 2, ..Default::default() };
    let daemon = Daemon::start(config, vec![export("disk", 1, 4096)], MEMORY, Order::AsAsked);
    let mut a = Client::connect(&daemon.socket(), "disk", Wish::default()).unwrap();
    let b = Client::connect(&daemon.socket(), "disk", Wish::default()).unwrap();
    let third = Client::connect(&daemon.socket(), "disk", Wish::default());
    assert!(third.and_then(|mut c| c.read(0, 4096)).is_err());
    b.disconnect().unwrap();
    eventually("a place is free", || daemon.acceptor.as_ref().unwrap().negotiated() == 1);
    let mut c = Client::connect(&daemon.socket(), "disk", Wish::default()).unwrap();
    assert_eq!(c.read(0, 4096).unwrap().error, 0);
    assert_eq!(a.read(0, 4096).unwrap().error, 0);
    assert_eq!(daemon.delivered.load(std::sync::atomic::Ordering::SeqCst), 3);
}

#[test]
fn stopping_does_not_wait_for_half_open_clients() {
    let mut daemon = Daemon::simple(4096);
    let held: Vec<_> = (0..50).map(|_| UnixStream::connect(daemon.socket()).unwrap()).collect();
    let mut client = Client::connect(&daemon.socket(), "disk", Wish::default()).unwrap();
    let start = std::time::Instant::now();
    daemon.acceptor.take().unwrap().stop();
    assert!(start.elapsed() < std::time::Duration::from_secs(8), "less than a handshake may take");
    assert_eq!(client.read(0, 4096).unwrap().error, 0, "negotiated ones live on");
    drop(held);
}
