//! Which pools were open, and where their devices were: a list of places to look first, never the truth about a pool.
//! What a device says of itself decides; without this file `import` finds the same pools, only later.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// One pool that was open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Remembered {
    pub(super) uuid: String,
    pub(super) name: String,
    /// Paths of members, in id order.
    pub(super) devices: Vec<PathBuf>,
}

#[derive(Serialize, Deserialize)]
struct Document {
    version: u32,
    pools: Vec<Remembered>,
}

const VERSION: u32 = 1;

fn file(state_dir: &Path) -> PathBuf {
    state_dir.join("pools.json")
}

/// What is remembered. No file is no pools; a file that cannot be understood is an error that names it.
pub(super) fn load(state_dir: &Path) -> io::Result<Vec<Remembered>> {
    let path = file(state_dir);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(io::Error::new(e.kind(), format!("reading {}: {e}", path.display()))),
    };
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {why}", path.display()));
    let document: Document = serde_json::from_slice(&text).map_err(|e| wrong(e.to_string()))?;
    if document.version != VERSION {
        return Err(wrong(format!("version {} of the list of pools is not understood", document.version)));
    }
    Ok(document.pools)
}

/// Writes the whole list: to a new file, to the disk, then over the old one.
fn save(state_dir: &Path, pools: Vec<Remembered>) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(state_dir)?;
    let path = file(state_dir);
    let fresh = path.with_extension("json.new");
    let document = Document { version: VERSION, pools };
    let text = serde_json::to_vec_pretty(&document).map_err(io::Error::other)?;
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    out.write_all(&text)?;
    out.sync_all()?;
    fs::rename(&fresh, &path)?;
    fs::File::open(state_dir)?.sync_all()
}

/// Changes the entry of one pool; without an entry it is forgotten. A list that cannot be understood is begun anew: it
/// is only about where to look first.
pub(super) fn update(state_dir: &Path, uuid: &str, entry: Option<Remembered>) -> io::Result<()> {
    let mut pools = load(state_dir).unwrap_or_else(|e| {
        tracing::warn!("{e}; the list is begun anew");
        Vec::new()
    });
    let before = pools.clone();
    pools.retain(|p| p.uuid != uuid);
    pools.extend(entry);
    pools.sort_by(|a, b| (&a.name, &a.uuid).cmp(&(&b.name, &b.uuid)));
    if pools == before {
        return Ok(());
    }
    save(state_dir, pools).map_err(|e| io::Error::new(e.kind(), format!("writing {}: {e}", file(state_dir).display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn pool(uuid: &str, name: &str) -> Remembered {
        Remembered { uuid: uuid.into(), name: name.into(), devices: vec!["/dev/sdb".into(), "/srv/a b.img".into()] }
    }

    #[test]
    fn pools_are_remembered_until_they_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("new/state");
        assert_eq!(load(&state).unwrap(), []);
        update(&state, "2", Some(pool("2", "tank"))).unwrap();
        update(&state, "1", Some(pool("1", "attic"))).unwrap();
        update(&state, "2", Some(pool("2", "tank"))).unwrap();
        assert_eq!(load(&state).unwrap(), [pool("1", "attic"), pool("2", "tank")]);
        assert_eq!(file(&state).metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!state.join("pools.json.new").exists());
        update(&state, "2", None).unwrap();
        assert_eq!(load(&state).unwrap(), [pool("1", "attic")]);
    }

    #[test]
    fn a_damaged_list_is_named_and_begun_anew() {
        let dir = tempfile::tempdir().unwrap();
        for text in ["{", "[]", r#"{"version":9,"pools":[]}"#] {
            fs::write(file(dir.path()), text).unwrap();
            assert!(load(dir.path()).unwrap_err().to_string().contains("pools.json"), "{text}");
        }
        update(dir.path(), "1", Some(pool("1", "tank"))).unwrap();
        assert_eq!(load(dir.path()).unwrap().len(), 1);
    }
}
