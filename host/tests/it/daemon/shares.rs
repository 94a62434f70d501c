//! Shares over NBD: listeners, who may come, and what comes back with the next daemon.

use std::fs;

use braid_host::control::api::*;
use braid_host::control::service::Service;
use braid_host::nbd::client::{Client, Wish};

use super::{MIB, World, eventually, pattern, request, share, unshare};

#[test]
fn two_pools_are_served_over_one_socket_and_each_keeps_its_own() {
    let world = World::new();
    world.tank("raid1", 2);
    world.create(request("attic", "single", &["ram:128M".into()])).unwrap();
    for pool in ["tank", "attic"] {
        world.volume(pool, "v", 32 * MIB);
        world.nbd(pool, "v");
    }
    let mut clients = [world.client("tank/v"), world.client("attic/v")];
    for (i, client) in clients.iter_mut().enumerate() {
        let data = vec![i as u8 + 1; 65_536];
        assert_eq!(client.write(0, 0, &data).unwrap().error, 0);
    }
    for (i, client) in clients.iter_mut().enumerate() {
        assert!(client.read(0, 65_536).unwrap().data.iter().all(|b| *b == i as u8 + 1));
    }
    let [tank, attic] = clients;
    drop(attic);
    eventually("gone", || world.list_shares_of("attic")[0].clients == Some(0));
    world.export(ExportPool { pool: "attic".into(), force: true, ..Default::default() }).unwrap();
    let mut tank = tank;
    assert_eq!(tank.read(0, 4096).unwrap().error, 0, "the other pool goes on");
    let none = Client::connect(&world.path("run/nbd.sock"), "attic/v", Wish::default());
    assert!(none.is_err());
    let snapshot = world.iostat(IoStat::default()).unwrap();
    assert_eq!(snapshot.pools.len(), 1);
    assert!(snapshot.pools[0].client.reads >= 2 && snapshot.monotonic_ns > snapshot.pools[0].opened_monotonic_ns);
    assert_eq!(world.usage(Usage::default()).unwrap()[0].raw_bytes, 512 * MIB);
}

#[test]
fn tcp_is_local_and_a_port_of_ones_own() {
    let world = World::new();
    world.create(request("tank", "single", &["ram:128M".into()])).unwrap();
    world.volume("tank", "v", 32 * MIB);
    let tcp = |address: &str, tls| CreateShare {
        listen: Listen::Tcp(address.into()),
        tls,
        tls_directory: Some(world.path("tls").display().to_string()),
        ..share("tank", "v", ShareKind::Nbd)
    };
    let error = world.share(tcp("0.0.0.0:0", Tls::Off)).unwrap_err();
    assert_eq!((error.code.as_str(), error.kind), ("share.not_local", ErrorKind::Refused));
    assert_eq!(world.share(tcp("127.0.0.1:0", Tls::Require)).unwrap_err().code, "tls.no_certificates");
    assert_eq!(world.shares(ListShares::default()).unwrap(), []);
    let info = world.share(tcp("127.0.0.1:0", Tls::Off)).unwrap();
    assert!(world.share(tcp("127.0.0.1:0", Tls::Off)).unwrap().existing);
    let address = info.uri.strip_prefix("nbd://").unwrap().strip_suffix("/tank/v").unwrap();
    let mut client = Client::connect_tcp(address.parse().unwrap(), "tank/v", Wish::default()).unwrap();
    assert_eq!(client.write(0, 0, &pattern(0, 4096)).unwrap().error, 0);
    assert!(!world.path("run/nbd.sock").exists(), "shared over TCP only");
    world.unshare(unshare(&info.uri, true)).unwrap();
    assert!(std::net::TcpStream::connect(address).is_err(), "the port is free again");
}

#[test]
fn unsharing_one_listener_leaves_the_clients_of_the_other() {
    let world = World::new();
    world.create(request("tank", "single", &["ram:128M".into()])).unwrap();
    world.volume("tank", "v", 32 * MIB);
    let unix = world.nbd("tank", "v");
    let listen = Listen::Tcp("127.0.0.1:0".into());
    let tcp = world.share(CreateShare { listen, ..share("tank", "v", ShareKind::Nbd) }).unwrap();
    let address = tcp.uri.strip_prefix("nbd://").unwrap().strip_suffix("/tank/v").unwrap();
    let mut near = world.client("tank/v");
    let mut far = Client::connect_tcp(address.parse().unwrap(), "tank/v", Wish::default()).unwrap();
    let clients = || -> Vec<Option<u32>> { world.list_shares_of("tank").iter().map(|s| s.clients).collect() };
    eventually("each listener counts its own", || clients() == [Some(1), Some(1)]);
    assert_eq!(far.write(0, 0, &pattern(0, 4096)).unwrap().error, 0);

    let busy = world.unshare(unshare(&tcp.uri, false)).unwrap_err();
    assert_eq!(busy.message, format!("{} has 1 clients", tcp.uri));
    world.unshare(unshare(&tcp.uri, true)).unwrap();
    far.read(0, 4096).expect_err("this one was hung up on");
    assert_eq!(near.read(0, 4096).unwrap().data, pattern(0, 4096));
    near.disconnect().unwrap();
    eventually("the client has gone", || clients() == [Some(0)]);
    world.unshare(unshare(&unix.uri, false)).unwrap();
}

#[test]
fn shares_come_back_with_their_pool_at_the_same_place() {
    let mut world = World::new();
    world.tank("raid1", 2);
    for volume in ["a", "b"] {
        world.volume("tank", volume, 32 * MIB);
    }
    let tcp = |volume: &str| CreateShare {
        listen: Listen::Tcp("127.0.0.1:0".into()),
        read_only: true,
        ..share("tank", volume, ShareKind::Nbd)
    };
    let kept = [world.nbd("tank", "a"), world.share(tcp("a")).unwrap()].map(|info| {
        assert!(info.remembered);
        info.uri
    });
    let passing = CreateShare { temporary: true, ..share("tank", "b", ShareKind::Nbd) };
    assert!(!world.share(passing.clone()).unwrap().remembered);
    let gone = world.share(tcp("b")).unwrap();
    world.unshare(unshare(&gone.uri, false)).unwrap();

    let uris = |world: &World| -> Vec<String> { world.list_shares_of("tank").into_iter().map(|s| s.uri).collect() };
    for _ in 0..2 {
        world.start();
        world.import_remembered();
        assert_eq!(uris(&world), kept, "neither the temporary one nor the one that was unshared");
        assert!(world.list_shares_of("tank")[1].read_only && world.list_shares_of("tank")[0].remembered);
        assert_eq!(world.client("tank/a").size, 32 * MIB);
    }
    // A temporary share that is asked for again without that word stays.
    world.share(passing).unwrap();
    let stays = world.nbd("tank", "b");
    assert!(stays.existing && stays.remembered);
    world.start();
    world.import_remembered();
    assert_eq!(uris(&world).len(), 3);

    // Exporting a pool ends what was shared of it.
    world.export(ExportPool { pool: "tank".into(), force: true, dry_run: false }).unwrap();
    world.import_from_here(&["tank"]).unwrap();
    assert_eq!(uris(&world), Vec::<String>::new());
}

#[test]
fn a_share_that_cannot_come_back_is_said_and_stops_nothing() {
    let mut world = World::new();
    world.tank("raid1", 2);
    world.volume("tank", "v", 32 * MIB);
    let listen = Listen::Tcp("127.0.0.1:0".into());
    let tcp = world.share(CreateShare { listen, ..share("tank", "v", ShareKind::Nbd) }).unwrap().uri;
    world.nbd("tank", "v");
    let address = tcp.strip_prefix("nbd://").unwrap().strip_suffix("/tank/v").unwrap().to_string();
    world.daemon = None;
    let other = std::net::TcpListener::bind(&address).unwrap();
    world.start();
    assert_eq!(world.import_remembered(), ["tank"]);
    assert_eq!(world.list_shares_of("tank").len(), 1, "the other one is there");
    assert!(world.codes().contains(&"share.not_restored".to_string()), "{:?}", world.codes());
    let problem = world.one_status().problems.remove(0);
    assert_eq!(problem.code, "share.not_restored");
    assert!(
        problem.message.starts_with(&format!("tank/v is not shared as {tcp} any more: listening on")),
        "{problem:?}"
    );

    // It is tried again by the next daemon.
    world.daemon = None;
    drop(other);
    world.start();
    world.import_remembered();
    assert_eq!((world.list_shares_of("tank").len(), world.one_status().problems.len()), (2, 0));

    // Or given up.
    world.daemon = None;
    let _other = std::net::TcpListener::bind(&address).unwrap();
    world.start();
    world.import_remembered();
    assert_eq!(world.one_status().problems.len(), 1);
    let dry = RemoveShare { dry_run: true, ..unshare(&tcp, false) };
    assert_eq!(world.unshare(dry).unwrap().what, format!("{tcp} given up"));
    assert_eq!(world.one_status().problems.len(), 1);
    world.unshare(unshare(&tcp, false)).unwrap();
    assert_eq!(world.one_status().problems, []);
    world.start();
    world.import_remembered();
    assert_eq!((world.list_shares_of("tank").len(), world.one_status().problems.len()), (1, 0));
    world.destroy_volume_by_force("tank", "v");
    world.volume("tank", "v", 32 * MIB);
    world.start();
    world.import_remembered();
    assert_eq!(world.list_shares_of("tank"), [], "another volume of the same name is another volume");
}

#[test]
fn a_read_only_share_takes_no_writes() {
    let world = World::new();
    world.create(request("tank", "single", &["ram:128M".into()])).unwrap();
    world.volume("tank", "v", 32 * MIB);
    world.share(CreateShare { read_only: true, ..share("tank", "v", ShareKind::Nbd) }).unwrap();
    assert_eq!(world.share(share("tank", "v", ShareKind::Nbd)).unwrap_err().code, "share.other_mode");
    let mut client = world.client("tank/v");
    assert_eq!(client.write(0, 0, &pattern(0, 4096)).unwrap().error, 1, "EPERM");
}

#[test]
fn sockets_of_a_service_manager_are_used_and_stay() {
    let world = World::new();
    let path = world.path("activated.sock");
    let socket = std::os::unix::net::UnixListener::bind(&path).unwrap();
    world.serve_activated_nbd(socket.into()).unwrap();
    world.create(request("tank", "single", &["ram:128M".into()])).unwrap();
    world.volume("tank", "v", 32 * MIB);
    for _ in 0..2 {
        assert!(world.nbd("tank", "v").uri.ends_with("activated.sock"));
        drop(Client::connect(&path, "tank/v", Wish::default()).unwrap());
        world.unshare(unshare("tank/v", true)).unwrap();
    }
    let file: std::os::fd::OwnedFd = fs::File::open("/dev/null").unwrap().into();
    assert!(world.serve_activated_nbd(file).is_err());
}
