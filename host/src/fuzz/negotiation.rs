//! Target: what a client says before an export is open, under each setting of TLS, all at once and byte by byte.
//!
//! How bytes arrive in pieces says nothing: the answers are the same. (Behind STARTTLS they are not, as then what came in
//! the clear with it counts as injected.)

use super::export;
use crate::nbd::handshake::{Config, ExportInfo, Exports, Handshake, OUTPUT_PAUSE, Outcome, TlsMode};

struct One(ExportInfo);

impl Exports for One {
    fn list(&self) -> Vec<ExportInfo> {
        vec![self.0.clone()]
    }
    fn lookup(&self, name: &str) -> Option<ExportInfo> {
        (name == self.0.name).then(|| self.0.clone())
    }
}

/// How it ended, and everything that was said.
#[derive(Debug, PartialEq)]
struct Ended {
    how: Result<Outcome, String>,
    said: Vec<u8>,
}

/// Plays both sides up to the end; taken when an export is open, or the client left in good order, under one setting.
pub fn negotiation(input: &[u8]) -> Result<bool, String> {
    let mut taken = false;
    for tls in [TlsMode::Off, TlsMode::Allow, TlsMode::Require] {
        let ended = play(input, tls, 1)?;
        taken |= matches!(ended.how, Ok(Outcome::Negotiated(_) | Outcome::Closed));
        if tls == TlsMode::Off && play(input, tls, usize::MAX)? != ended {
            return Err("byte by byte it is another negotiation than all at once".into());
        }
        play(input, tls, usize::MAX)?;
    }
    Ok(taken)
}

fn play(input: &[u8], tls: TlsMode, step: usize) -> Result<Ended, String> {
    let exports = One(export());
    let mut handshake = Handshake::new(Config { tls });
    let (mut rest, mut said) = (input, Vec::new());
    loop {
        let result = handshake.feed(&rest[..rest.len().min(step)], &exports);
        let output = handshake.take_output();
        if output.len() >= 2 * OUTPUT_PAUSE {
            return Err(format!("{} bytes wait to be sent", output.len()));
        }
        said.extend_from_slice(&output);
        let used = match result {
            Ok(used) => used,
            Err(violation) => return Ok(Ended { how: Err(violation.to_string()), said }),
        };
        rest = &rest[used..];
        match handshake.outcome() {
            Outcome::StartTls => handshake.tls_started(),
            Outcome::Open if rest.is_empty() => return Ok(Ended { how: Ok(Outcome::Open), said }),
            Outcome::Open if used == 0 && output.is_empty() => return Err("it neither reads nor says anything".into()),
            Outcome::Open => {}
            ended => return Ok(Ended { how: Ok(ended.clone()), said }),
        }
    }
}
