//! Our NBD server beside nbdkit and qemu-nbd.
//!
//! All servers run as processes of their own on Unix sockets, are filled once, and take turns: A B C C B A, five times
//! each or more. A server that is not installed is left out, and said so.

use super::load::{Conn, Shape, round_trip_ns, together};
use super::{RUNS, Row, failed, median, process_cpu_ns};
use braid_core::units::MIB;
use braid_host::control::api::ApiError;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SIZE: u64 = 256 * MIB;
const CONNECTIONS: [usize; 2] = [1, 4];

struct Group {
    name: &'static str,
    /// At depth 32; elsewhere it is 1.0.
    target: f64,
    /// Name and command; `{socket}` and `{file}` are filled in.
    peers: &'static [(&'static str, &'static str)],
    disk: &'static str,
}

const GROUPS: [Group; 3] = [
    Group {
        name: "null",
        target: 1.5,
        disk: "null:1G",
        peers: &[
            ("nbdkit null", "nbdkit -f -U {socket} null 256M"),
            (
                "qemu-nbd null-co",
                "qemu-nbd -t -e 16 -k {socket} --image-opts driver=null-co,size=268435456,read-zeroes=off",
            ),
        ],
    },
    Group {
        name: "ram",
        target: 1.5,
        disk: "ram:1G",
        peers: &[("nbdkit memory", "nbdkit -f -U {socket} memory 256M")],
    },
    Group {
        name: "file",
        target: 1.2,
        disk: "{file}",
        peers: &[
            ("qemu-nbd direct", "qemu-nbd -t -e 16 -k {socket} --cache=none --aio=io_uring -f raw {file}"),
            ("nbdkit file", "nbdkit -f -U {socket} file {file} cache=none"),
        ],
    },
];

fn cases() -> Vec<(&'static str, Shape)> {
    let random = |write, depth, batched| Shape { write, len: 4096, depth, sequential: false, batched };
    let large = |write| Shape { write, len: 128 << 10, depth: 8, sequential: true, batched: true };
    vec![
        ("4k randread d1", random(false, 1, true)),
        ("4k randread d32", random(false, 32, true)),
        ("4k randread d32 one by one", random(false, 32, false)),
        ("4k randwrite d1", random(true, 1, true)),
        ("4k randwrite d32", random(true, 32, true)),
        ("4k randwrite d32 one by one", random(true, 32, false)),
        ("128k read", large(false)),
        ("128k write", large(true)),
    ]
}

/// Random reads of 4 KiB, 32 at once.
pub(super) const RANDOM_READS: Shape = Shape { write: false, len: 4096, depth: 32, sequential: false, batched: true };

pub(super) struct Server {
    name: String,
    child: Child,
    socket: PathBuf,
    conns: Vec<Conn>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.conns.clear();
        // By its own id, and only while it is our child.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    pub(super) fn start(name: &str, line: &str, export: &str, socket: PathBuf) -> Result<Option<Server>, ApiError> {
        let mut words = line.split_whitespace();
        let program = words.next().unwrap_or_default();
        let mut command = Command::new(program);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // SAFETY: one system call with numbers; it ends the server when this thread is gone.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                Ok(())
            });
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(failed(format!("{program}: {e}"))),
        };
        if !export.is_empty() {
            let mut line = String::new();
            if let Some(out) = child.stdout.take() {
                BufReader::new(out).read_line(&mut line).map_err(failed)?;
            }
        }
        let mut server = Server { name: name.into(), child, socket, conns: Vec::new() };
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            match Conn::open(&server.socket, export, SIZE) {
                Ok(conn) => server.conns.push(conn),
                Err(e) if Instant::now() > deadline => return Err(failed(format!("{name}: {e}"))),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
            if server.conns.len() == *CONNECTIONS.iter().max().unwrap_or(&1) {
                break;
            }
        }
        server.conns[0].fill()?;
        Ok(Some(server))
    }
}

pub(super) fn run(quick: bool, dir: &Path, only: Option<&str>) -> Result<Vec<Row>, ApiError> {
    let time = Duration::from_millis(if quick { 300 } else { 1000 });
    let mut rows = Vec::new();
    for group in &GROUPS {
        let label = |n: usize, case: &str| format!("{} {case}, {n} conn", group.name);
        let wanted = |label: &str| only.is_none_or(|only| only.split(',').any(|word| label.contains(word)));
        let cases: Vec<(usize, &str, Shape)> = CONNECTIONS
            .iter()
            .flat_map(|&n| cases().into_iter().map(move |(case, shape)| (n, case, shape)))
            .filter(|(n, case, shape)| (*n == 1 || shape.batched) && wanted(&label(*n, case)))
            .collect();
        if cases.is_empty() {
            continue;
        }
        let temp = tempfile::tempdir_in(dir).map_err(failed)?;
        let mut servers = Vec::new();
        let own = std::env::current_exe().map_err(failed)?;
        let ours = ("braid", format!("{} internal bench-serve {{socket}} {SIZE} {}", own.display(), group.disk));
        let peers = group.peers.iter().map(|(name, line)| (*name, line.to_string()));
        for (i, (name, line)) in std::iter::once(ours).chain(peers).enumerate() {
            let (socket, file) = (temp.path().join(format!("s{i}")), temp.path().join(format!("f{i}")));
            if i > 0 && line.contains("{file}") {
                std::fs::File::create(&file).and_then(|f| f.set_len(SIZE)).map_err(failed)?;
            }
            let line = line.replace("{socket}", &socket.display().to_string());
            let line = line.replace("{file}", &file.display().to_string());
            match Server::start(name, &line, if i == 0 { "v" } else { "" }, socket)? {
                Some(server) => servers.push(server),
                None => eprintln!("{name} is not installed, left out"),
            }
        }
        for (n, case, shape) in cases {
            rows.extend(compare(&mut servers, &label(n, case), group.target, n, shape, (RUNS, time))?);
        }
        if let Some(found) = fio(&mut servers, group, time, &wanted)? {
            rows.extend(found);
        }
    }
    Ok(rows)
}

fn target(group: f64, shape: Shape) -> f64 {
    if shape.depth == 32 { group } else { 1.0 }
}

/// Everybody's turn, there and back, until each had so many; what each turn gave.
fn in_turns(
    count: usize,
    runs: usize,
    mut turn: impl FnMut(usize, u64) -> Result<[f64; 3], ApiError>,
) -> Result<Vec<[Vec<f64>; 3]>, ApiError> {
    let mut results = vec![[const { Vec::new() }; 3]; count];
    for run in 0..runs {
        for step in 0..count {
            let who = if run % 2 == 0 { step } else { count - 1 - step };
            let values = turn(who, run as u64 + 1)?;
            results[who].iter_mut().zip(values).for_each(|(all, value)| all.push(value));
        }
    }
    Ok(results)
}

pub(super) fn compare(
    servers: &mut [Server],
    case: &str,
    group: f64,
    n: usize,
    shape: Shape,
    (runs, time): (usize, Duration),
) -> Result<Vec<Row>, ApiError> {
    let results = in_turns(servers.len(), runs, |who, seed| {
        let server = &mut servers[who];
        let (cpu, began) = (process_cpu_ns(server.child.id()), Instant::now());
        let rate = together(&mut server.conns[..n], shape, seed, time)
            .map_err(|e| failed(format!("{} on {case}: {e}", server.name)))?;
        let cpu = process_cpu_ns(server.child.id()) - cpu;
        let cpu = cpu as f64 / (rate * began.elapsed().as_secs_f64()).max(1.0);
        Ok([rate, cpu, round_trip_ns(&server.conns[..n])])
    })?;
    let [ours, our_cpu, our_trip] = &results[0];
    let (our_cpu, our_trip) = (median(our_cpu), median(our_trip));
    let others = servers.iter().zip(&results).skip(1);
    Ok(others
        .map(|(server, [rates, cpu, trip])| Row {
            cpu_ns: Some((our_cpu, median(cpu))),
            round_trip_ns: (median(trip) > 0.0).then_some((our_trip, median(trip))),
            ..Row::turns(case, &server.name, ours, rates, target(group, shape))
        })
        .collect())
}

/// A second opinion from a generator that is not ours.
fn fio(
    servers: &mut [Server],
    group: &Group,
    time: Duration,
    wanted: &dyn Fn(&str) -> bool,
) -> Result<Option<Vec<Row>>, ApiError> {
    let mut rows = Vec::new();
    for (rw, depth) in [("randread", 1), ("randread", 32), ("randwrite", 1), ("randwrite", 32)] {
        let case = format!("{} 4k {rw} d{depth}, fio", group.name);
        if !wanted(&case) {
            continue;
        }
        let mut absent = false;
        let results =
            in_turns(servers.len(), RUNS, |who, _| match fio_once(&servers[who], who == 0, rw, depth, time)? {
                Some(rate) => Ok([rate, 0.0, 0.0]),
                None => {
                    absent = true;
                    Ok([0.0; 3])
                }
            })?;
        if absent {
            eprintln!("fio with the nbd engine is not installed, left out");
            return Ok(None);
        }
        let target = if depth == 32 { group.target } else { 1.0 };
        let others = servers.iter().zip(&results).skip(1);
        rows.extend(others.map(|(server, r)| Row::turns(case.clone(), &server.name, &results[0][0], &r[0], target)));
    }
    Ok(Some(rows))
}

fn fio_once(server: &Server, ours: bool, rw: &str, depth: u32, time: Duration) -> Result<Option<f64>, ApiError> {
    let uri = format!("--uri=nbd+unix:///{}?socket={}", if ours { "v" } else { "" }, server.socket.display());
    let output = Command::new("fio")
        .args(["--name=b", "--ioengine=nbd", "--bs=4k", "--time_based", "--output-format=terse", "--terse-version=3"])
        .args([&uri, &format!("--rw={rw}"), &format!("--iodepth={depth}")])
        .arg(format!("--runtime={}ms", time.as_millis()))
        .current_dir(server.socket.parent().unwrap_or(Path::new("/")))
        .output();
    let output = match output {
        Ok(output) if output.status.success() => output.stdout,
        Ok(_) => return Ok(None),
        Err(_) => return Ok(None),
    };
    // Terse version 3, counted from 0: 7 is read IOPS, 48 is write IOPS.
    let text = String::from_utf8_lossy(&output);
    let field = if rw == "randread" { 7 } else { 48 };
    let rate = text.lines().find_map(|line| line.split(';').nth(field)?.parse::<f64>().ok());
    Ok(rate.filter(|rate| *rate > 0.0))
}
