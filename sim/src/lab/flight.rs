//! Replays a flight record: a fresh engine is opened from the same bytes and given the same inputs at the same moments, and
//! has to want the same.
//!
//! Nothing is modelled here: disks and clients are what the record says. A damaged record may say what no host does, and an
//! engine relies on its host; so commands are answered only while they are under way, and an engine that stops by itself is
//! a sentence here.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use braid_core::Engine;
use braid_core::flight::{Digest, Entries, Entry};
use braid_core::meta::assembly::{Assembly, Step};
use braid_core::meta::superblock::Superblock;
use braid_core::request::{Input, IoError, Output};
use braid_core::units::{Instant, IoId, Uuid};

/// Outputs in a row that say there is nothing to do: a host asks no more often.
const IDLE_MAX: u32 = 1 << 20;

/// What a replay was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replayed {
    /// Inputs.
    pub inputs: u64,
    /// Outputs, and their digest.
    pub digest: Digest,
    /// Digests of the record that were compared.
    pub compared: u64,
    /// From the opening to the last entry.
    pub ns: u64,
    /// The record ends in the middle of an entry: what comes after the last digest was not compared.
    pub cut: bool,
}

/// Replays a record; where the engine differs, or what is wrong with the record, in a sentence. What panics is caught;
/// whoever finds the message of the panic on standard error a nuisance sets a hook.
pub fn replay(record: &[u8]) -> Result<Replayed, String> {
    let mut replayed = Replayed { inputs: 0, digest: Digest::default(), compared: 0, ns: 0, cut: false };
    let done = catch_unwind(AssertUnwindSafe(|| replay_into(&mut replayed, record)));
    done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(format!(
            "the engine stopped at input {}, {} ms after the opening: {}; either the record is damaged, or this is the \
             fault that it was kept for",
            replayed.inputs,
            replayed.ns / 1_000_000,
            text.unwrap_or("it did not say why")
        ))
    })?;
    match replayed.compared {
        0 => Err("the record ends before its first digest: nothing can be compared".into()),
        _ => Ok(replayed),
    }
}

fn replay_into(replayed: &mut Replayed, record: &[u8]) -> Result<(), String> {
    let mut entries = Entries::new(record).map_err(|_| "this is no flight record of version 1".to_string())?;
    let mut engine = opened(&mut entries)?;
    let mut issued = BTreeSet::new();
    for entry in entries {
        match entry {
            Ok(Entry::Handle(now, input)) => {
                (replayed.inputs, replayed.ns) = (replayed.inputs + 1, now.0);
                if let Input::Complete { id, .. } | Input::Intact { id } = input
                    && !issued.remove(&id)
                {
                    return Err(format!(
                        "input {} answers a command that is not under way: the record is damaged, or of another version \
                         of braid",
                        replayed.inputs
                    ));
                }
                engine.handle(now, input);
            }
            Ok(Entry::Poll(now, count)) => {
                replayed.ns = now.0;
                poll(&mut engine, replayed, &mut issued, count)?;
            }
            Ok(Entry::End(outputs, hash)) => {
                compare(replayed, Digest { outputs, hash })?;
                replayed.compared += 1;
            }
            Ok(_) => return Err("the record opens a second engine".into()),
            Err(_) => {
                replayed.cut = true;
                break;
            }
        }
    }
    Ok(())
}

/// Takes so many outputs, and notes the commands among them.
fn poll(engine: &mut Engine, replayed: &mut Replayed, issued: &mut BTreeSet<IoId>, count: u32) -> Result<(), String> {
    let mut idle = 0;
    for _ in 0..count {
        let output = engine.poll(Instant(replayed.ns));
        replayed.digest.add(&output);
        match output {
            Output::Idle { .. } if idle == IDLE_MAX => {
                return Err(format!("{count} outputs were taken where there are none: the record is damaged"));
            }
            Output::Idle { .. } => idle += 1,
            Output::Issue(command) => {
                issued.insert(command.id);
            }
            _ => {}
        }
    }
    Ok(())
}

fn compare(replayed: &Replayed, wanted: Digest) -> Result<(), String> {
    if replayed.digest == wanted {
        return Ok(());
    }
    Err(format!(
        "the engine differs from the recorded one {} ms after the opening, within {} inputs: {} outputs with digest \
         {:016x}, and {} with {:016x} were recorded; is the record of another version of braid?",
        replayed.ns / 1_000_000,
        replayed.inputs,
        replayed.digest.outputs,
        replayed.digest.hash,
        wanted.outputs,
        wanted.hash
    ))
}

/// The engine as it was opened.
fn opened(entries: &mut Entries<'_>) -> Result<Engine, String> {
    const CUT: &str = "the record ends within the opening of the pool";
    let (mut boot, mut superblocks, mut reads) = (Uuid([0; 16]), Vec::new(), Vec::new());
    let opening = loop {
        match entries.next() {
            Some(Ok(Entry::Boot(id))) => boot = id,
            Some(Ok(Entry::Superblock(slot))) => {
                superblocks.push(Superblock::decode(&slot).map_err(|e| format!("a superblock of the record: {e:?}"))?);
            }
            Some(Ok(Entry::Read(read, result))) => reads.push((read, result)),
            Some(Ok(Entry::Open(opening))) => break opening,
            // Of a long opening: nothing came out yet.
            Some(Ok(Entry::End(..))) => {}
            Some(Ok(_)) => return Err("the record begins with something else than an opening".into()),
            Some(Err(_)) | None => return Err(CUT.into()),
        }
    };
    let mut assembly = Assembly::new(superblocks, boot)?;
    // Each step wants something that the record has, or it is the last.
    for _ in 0..=reads.len() {
        match assembly.step() {
            Step::Failed(why) => return Err(format!("the recorded pool cannot be opened: {why}")),
            Step::Ready(opened) => return Ok(Engine::new(*opened, Instant(0), boot, opening)),
            Step::Read(wanted) => {
                for read in wanted {
                    let found = reads.iter().find(|(known, _)| *known == read);
                    let result = found.map_or(Err(IoError::Gone), |(_, result)| result.clone());
                    assembly.supply(read, result);
                }
            }
        }
    }
    Err("opening asks for more than was recorded".into())
}

/// Inputs of a record by kind, for people: requests, completions, the rest.
pub fn kinds(record: &[u8]) -> [u64; 3] {
    let mut kinds = [0; 3];
    for entry in Entries::new(record).into_iter().flatten() {
        if let Ok(Entry::Handle(_, input)) = entry {
            kinds[match input {
                Input::Submit(_) => 0,
                Input::Complete { .. } | Input::Intact { .. } => 1,
                _ => 2,
            }] += 1;
        }
    }
    kinds
}
