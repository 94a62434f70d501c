//! Files that are named on the command line, read whole. What is wrong with one is a sentence with the next step.
//!
//! Exit code 4 says that it is not there, 2 that it cannot be what it has to be, 1 that reading it failed.

use braid_core::flight;
use braid_host::control::api::ApiError;
use braid_host::control::{check, size};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Longest file that is read: more does not fit in memory with ease.
const FILE_MAX: u64 = 4 << 30;
/// So many bytes tell text from a disk image.
const HEAD: u64 = 4096;

/// A file of text; `what` it has to be, such as "a job file of fio".
pub(crate) fn text(path: &Path, what: &str) -> Result<String, ApiError> {
    let mut file = open(path, what)?;
    let read = |file: &mut File, most: u64| {
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes).map(|_| bytes).map_err(|e| unreadable(path, &e))
    };
    let mut bytes = read(&mut file, HEAD)?;
    if bytes.starts_with(flight::MAGIC) {
        let replay = format!("replay it with: braid trace replay {}", path.display());
        return Err(unfit(path, what, "it is a flight record").hint(replay));
    }
    if bytes.contains(&0) {
        return Err(unfit(path, what, "it is not text"));
    }
    bytes.extend(read(&mut file, FILE_MAX)?);
    String::from_utf8(bytes).map_err(|_| unfit(path, what, "it is not text"))
}

/// Any file.
pub(crate) fn bytes(path: &Path, what: &str) -> Result<Vec<u8>, ApiError> {
    let mut bytes = Vec::new();
    open(path, what)?.take(FILE_MAX).read_to_end(&mut bytes).map_err(|e| unreadable(path, &e))?;
    Ok(bytes)
}

/// A file or a pipe; no folder, no disk, nothing endless.
fn open(path: &Path, what: &str) -> Result<File, ApiError> {
    let facts = fs::metadata(path).map_err(|e| match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => missing(path, what),
        _ => unreadable(path, &e),
    })?;
    let kind = facts.file_type();
    if kind.is_dir() {
        return Err(unfit(path, what, "it is a folder"));
    }
    if kind.is_block_device() {
        return Err(unfit(path, what, "it is a disk"));
    }
    if facts.len() > FILE_MAX {
        let why = format!("it has {}, and at most {} are read", size::long(facts.len()), size::long(FILE_MAX));
        return Err(unfit(path, what, &why));
    }
    File::open(path).map_err(|e| unreadable(path, &e))
}

/// Says the name nearby that was probably meant.
fn missing(path: &Path, what: &str) -> ApiError {
    let error =
        ApiError::not_found("file.not_found", format!("there is no file {}; it has to be {what}", path.display()));
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let Ok(entries) = fs::read_dir(folder) else {
        return error.hint(format!("nor is there a folder {}", folder.display()));
    };
    let names: Vec<String> = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    let typed = path.file_name().unwrap_or_default().to_string_lossy();
    match check::nearest(&typed, &names.iter().map(String::as_str).collect::<Vec<_>>()) {
        Some(near) => error.hint(format!("you may mean {}", path.with_file_name(near).display())),
        None => error,
    }
}

fn unfit(path: &Path, what: &str, why: &str) -> ApiError {
    ApiError::usage("file.unfit", format!("{} cannot be {what}: {why}", path.display()))
}

fn unreadable(path: &Path, why: &io::Error) -> ApiError {
    ApiError::failed("file.unreadable", format!("reading {} failed: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_file_is_told_with_the_next_step() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::write(path("web.fio"), "[j]\n").expect("write");
        fs::write(path("tank.flight"), "BRAIDFL2\0").expect("write");
        File::create(path("disk.img")).and_then(|file| file.set_len(FILE_MAX)).expect("a sparse file");
        File::create(path("huge.img")).and_then(|file| file.set_len(2 * FILE_MAX)).expect("a sparse file");
        fs::write(path("latin"), b"caf\xe9").expect("write");
        assert_eq!(text(&path("web.fio"), "a job").expect("text"), "[j]\n");
        for (name, exit, message, hint) in [
            ("wbe.fio", 4, "it has to be a job", Some("you may mean")),
            ("nowhere/web.fio", 4, "there is no file", Some("nor is there a folder")),
            ("xyzzy", 4, "there is no file", None),
            ("tank.flight", 2, "it is a flight record", Some("braid trace replay")),
            ("disk.img", 2, "it is not text", None),
            ("huge.img", 2, "it has 8GiB, and at most 4GiB are read", None),
            ("latin", 2, "it is not text", None),
            ("", 2, "it is a folder", None),
        ] {
            let error = text(&path(name), "a job").expect_err(name);
            assert!(error.kind.exit_code() == exit && error.message.contains(message), "{name}: {error:?}");
            assert_eq!(error.hint.is_some(), hint.is_some(), "{name}: {error:?}");
            assert!(error.hint.unwrap_or_default().contains(hint.unwrap_or_default()), "{name}");
        }
    }
}
