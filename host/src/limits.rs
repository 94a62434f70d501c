//! Limits that the system sets to this process.

use std::io;

/// Raises the soft limit of open files to the hard one; returns it. The usual soft limit of 1,024 is for programs that
/// use `select`: a daemon with as many clients would run into it and then could not open its own files either.
pub fn raise_open_files() -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a structure that lives through the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: as above.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(limit.rlim_cur)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
        let hard = limit.rlim_max;
        limit.rlim_cur = hard.min(512);
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
        assert_eq!(raise_open_files().unwrap(), hard);
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
        assert_eq!(limit.rlim_cur, hard);
    }
}
