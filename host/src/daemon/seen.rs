//! Where a member was last seen, as the pool's own records keep it for people: its path and, of a disk that has one, its serial
//! number. Paths change from boot to boot; what is printed on the disk does not.

const SERIAL: &str = ", serial ";

/// What the records keep.
pub(super) fn record(path: &str, serial: Option<&str>) -> String {
    match serial {
        Some(serial) => format!("{path}{SERIAL}{serial}"),
        // A path that looks as if it had one has an empty one behind it.
        None if path.contains(SERIAL) => format!("{path}{SERIAL}"),
        None => path.to_string(),
    }
}

/// Path and serial number of what they kept.
pub(super) fn parts(seen: &str) -> (&str, Option<&str>) {
    match seen.rsplit_once(SERIAL) {
        Some((path, serial)) => (path, Some(serial).filter(|serial| !serial.is_empty())),
        None => (seen, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_and_a_serial_number_come_back() {
        for (path, serial) in [
            ("/dev/sdb", Some("WD-WCC4N7")),
            ("/srv/a file, serial or not", None),
            ("/dev/disk/by-id/x, serial 1", Some("2 3")),
        ] {
            assert_eq!(parts(&record(path, serial)), (path, serial));
        }
    }
}
