//! Where the processes of a user meet: a private directory, and what to do if it cannot be had.
//!
//! It is `/dev/shm/adverb-UID`. Anybody may make a directory of that name first, and some containers have no `/dev/shm` or one
//! that cannot be written. Then it is `adverb` in the user's runtime directory, which nobody else can enter, or else
//! `/tmp/adverb-UID`. The runtime directory is not the first choice because it comes and goes with the user's sessions, and
//! processes that began before and after would not meet.

use std::fs::{self, DirBuilder};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};
use rustix::io::Errno;

/// The directory in which the processes of this user, in this network namespace and on this port, find each other.
/// It is made if need be. If none of the places can be used, the error says what is wrong with each.
pub fn private_dir(port: u16) -> io::Result<PathBuf> {
    let uid = rustix::process::geteuid().as_raw();
    let netns = Path::new("/proc/self/ns/net");
    let netns = fs::metadata(netns).map_err(|error| named(error, netns))?;
    let inner = format!("{}-{port}", netns.ino());
    let user = format!("adverb-{uid}");
    let runtime = PathBuf::from(format!("/run/user/{uid}"));
    first_usable(
        &[
            Path::new("/dev/shm").join(&user),
            runtime.join("adverb"),
            Path::new("/tmp").join(&user),
        ],
        &inner,
        uid,
    )
}

/// The first of some directories that is ours or can be made, and `inner` in it.
fn first_usable(places: &[PathBuf], inner: &str, uid: u32) -> io::Result<PathBuf> {
    let mut refused: Option<io::Error> = None;
    for place in places {
        let dir = place.join(inner);
        let error = match usable(place, uid).and_then(|()| usable(&dir, uid)) {
            Ok(()) => return Ok(dir),
            Err(error) => error,
        };
        let kind = error.kind();
        refused = Some(match refused.take() {
            None => error,
            Some(first) => io::Error::new(first.kind(), format!("{first}; {error}")),
        });
        // Of what else is wrong others know nothing: they would meet here, and we elsewhere.
        if !matches!(
            kind,
            ErrorKind::NotFound
                | ErrorKind::PermissionDenied
                | ErrorKind::ReadOnlyFilesystem
                | ErrorKind::NotADirectory
        ) {
            break;
        }
    }
    Err(refused.unwrap_or_else(|| ErrorKind::NotFound.into()))
}

/// Makes a directory that is ours alone, unless it is there, and sees whether it can be written.
fn usable(dir: &Path, uid: u32) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(named(error, dir)),
        _ => {}
    }
    // symlink_metadata: a link that somebody planted is not followed.
    let found = fs::symlink_metadata(dir).map_err(|error| named(error, dir))?;
    let (owner, mode) = (found.uid(), found.mode() & 0o7777);
    if !found.is_dir() || owner != uid || mode & 0o077 != 0 {
        return Err(io::Error::new(
            ErrorKind::PermissionDenied,
            format!(
                "{} must be a directory of user {uid} with mode 700, but is {} of user {owner} with mode {mode:o} (whoever owns it, or root, can remove it)",
                dir.display(),
                match found.file_type() {
                    t if t.is_dir() => "one",
                    t if t.is_symlink() => "a symbolic link",
                    _ => "a file",
                },
            ),
        ));
    }
    access(dir, Access::WRITE_OK | Access::EXEC_OK).map_err(|error| named(error.into(), dir))
}

/// The error with the path that it is about. A table of descriptors that is full has nothing to do with the path, and no
/// kind of its own.
pub(super) fn named(error: io::Error, path: &Path) -> io::Error {
    let errno = error.raw_os_error().map(Errno::from_raw_os_error);
    if matches!(errno, Some(Errno::MFILE | Errno::NFILE)) {
        return error;
    }
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn uid() -> u32 {
        rustix::process::geteuid().as_raw()
    }

    #[test]
    fn a_directory_that_others_can_enter_is_refused() {
        let base = tempfile::tempdir().unwrap();
        let dir = base.path().join("private");
        usable(&dir, uid()).unwrap();
        usable(&dir, uid()).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        let error = usable(&dir, uid()).unwrap_err();
        assert!(error.to_string().contains("mode 700"), "{error}");
        let link = base.path().join("link");
        std::os::unix::fs::symlink(base.path(), &link).unwrap();
        let error = usable(&link, uid()).unwrap_err();
        assert!(error.to_string().contains("a symbolic link"), "{error}");
        usable(&base.path().join("private2"), uid() + 1).unwrap_err();
    }

    #[test]
    fn where_somebody_was_first_another_place_is_found() {
        let base = tempfile::tempdir().unwrap();
        let squatted = base.path().join("squatted");
        fs::create_dir(&squatted).unwrap();
        fs::set_permissions(&squatted, fs::Permissions::from_mode(0o755)).unwrap();
        let missing = base.path().join("missing/adverb");
        let good = base.path().join("good");
        let places = [squatted.clone(), missing.clone(), good.clone()];
        let found = first_usable(&places, "1-2", uid()).unwrap();
        assert_eq!(found, good.join("1-2"));
        // Again, as every other process of the user.
        assert_eq!(first_usable(&places, "1-2", uid()).unwrap(), found);
        let error = first_usable(&places[..2], "1-2", uid()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        for place in [squatted, missing] {
            assert!(
                error.to_string().contains(&place.display().to_string()),
                "{error}"
            );
        }
    }
}
