//! The secret that the processes of a job prove to each other where the kernel cannot tell whose
//! they are: over a network.
//!
//! It is a text that the user gives to all of them (`PATHLINE_SECRET`), or one that the coordinator
//! draws and leaves in a file of the user's home folder while it waits for ranks. Nothing shows it:
//! it is never an argument, and no error, note or `Debug` text contains it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use hmac::{Hmac, KeyInit, Mac};
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// The variable that has it.
pub(super) const VARIABLE: &str = "PATHLINE_SECRET";
/// How a user makes one.
pub(super) const HOW_TO_GIVE: &str = "give all processes the same secret: export \
     PATHLINE_SECRET=$(openssl rand -hex 32) before the launcher is called, and have the launcher \
     pass the variable on";
/// Fewer characters can be guessed from one proof.
const SHORTEST: usize = 16;
/// Longer files are not ours.
const LONGEST: u64 = 256;

/// Bytes in hexadecimal digits where they are text: nonces and proofs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub(super) struct Digest([u8; 32]);

impl Digest {
    /// In the place of one that is still to be drawn.
    pub(super) const ZERO: Self = Self([0; 32]);

    /// Random bytes of the kernel.
    pub(super) fn random() -> io::Result<Self> {
        let mut bytes = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(bytes))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl TryFrom<String> for Digest {
    type Error = &'static str;
    fn try_from(text: String) -> std::result::Result<Self, Self::Error> {
        let bad = "expected 64 hexadecimal digits";
        let (mut bytes, digits) = ([0; 32], text.as_bytes());
        if digits.len() != 2 * bytes.len() {
            return Err(bad);
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |d: u8| char::from(d).to_digit(16).and_then(|d| u8::try_from(d).ok());
            *byte = digit(pair[0]).ok_or(bad)? << 4 | digit(pair[1]).ok_or(bad)?;
        }
        Ok(Self(bytes))
    }
}

/// The role that a proof is for: a proof of one role is invalid in another, so none can be
/// replayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Coordinator,
    Rank,
    /// Not an identity, but the name of a socket.
    Socket,
}

impl Role {
    const fn label(self) -> &'static [u8] {
        match self {
            Self::Coordinator => b"pathline coordinator 1",
            Self::Rank => b"pathline rank 1",
            Self::Socket => b"pathline socket 1",
        }
    }
}

/// A key for proofs. It has no `Debug` on purpose.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Secret(Vec<u8>);

impl Secret {
    /// The secret from the environment; `None` without one.
    ///
    /// # Errors
    /// It is too short to be a secret.
    pub(super) fn from_env() -> Result<Option<Self>> {
        match std::env::var_os(VARIABLE) {
            Some(text) if !text.is_empty() => Self::new(text.as_bytes()).map(Some),
            _ => Ok(None),
        }
    }

    /// A text that the user gave.
    ///
    /// # Errors
    /// It is too short to be a secret.
    pub(super) fn new(text: &[u8]) -> Result<Self> {
        let text = text.trim_ascii();
        if text.len() < SHORTEST {
            return Err(anyhow!(
                "{VARIABLE} has {} characters, and fewer than {SHORTEST} can be guessed; {HOW_TO_GIVE}",
                text.len()
            ));
        }
        Ok(Self(text.to_vec()))
    }

    /// The proof of a role that it knows the secret, over the messages of both sides.
    pub(super) fn prove(&self, role: Role, messages: &[&[u8]]) -> Digest {
        Digest(self.mac(role, messages).finalize().into_bytes().into())
    }

    /// A name derived from another one, which only processes with the secret can predict.
    pub(super) fn hidden_name(&self, name: &str) -> String {
        let digits = String::from(self.prove(Role::Socket, &[name.as_bytes()]));
        format!("{name}-{}", digits.get(..16).unwrap_or_default())
    }

    /// Whether that is the proof of a role, in constant time.
    pub(super) fn accepts(&self, proof: &Digest, role: Role, messages: &[&[u8]]) -> bool {
        self.mac(role, messages).verify_slice(&proof.0).is_ok()
    }

    fn mac(&self, role: Role, messages: &[&[u8]]) -> Hmac<Sha256> {
        let mut mac = keyed(&self.0);
        for part in std::iter::once(&role.label()).chain(messages) {
            // With their lengths no two lists of parts are the same bytes.
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }
}

fn keyed(key: &[u8]) -> Hmac<Sha256> {
    Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length")
}

/// A secret that was drawn for one gathering, in a file that goes when it is over.
pub(super) struct SecretFile {
    path: PathBuf,
    pub(super) secret: Secret,
}

impl SecretFile {
    /// Draws one for the processes that meet at `host` and `port`.
    ///
    /// # Errors
    /// There is no home folder, or it cannot be written to.
    pub(super) fn create(host: &str, port: u16) -> Result<Self> {
        let folder = home()?.join(FOLDER);
        let path = folder.join(file_name(host, port));
        let make = || -> Result<Secret> {
            DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
            let drawn: Vec<u8> = String::from(Digest::random()?).into_bytes();
            // A concurrent reader finds all of it or nothing, and an older file is replaced.
            let new = folder.join(format!("{}.{}.new", file_name(host, port), std::process::id()));
            let _ = fs::remove_file(&new);
            let mut file =
                OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
            let written = file.write_all(&drawn).and_then(|()| file.sync_all());
            if let Err(error) = written.and_then(|()| fs::rename(&new, &path)) {
                let _ = fs::remove_file(&new);
                return Err(error.into());
            }
            check_folder(&folder)?;
            Secret::new(&drawn)
        };
        let secret = make().with_context(|| {
            format!("no secret for the ranks can be left in {}; {HOW_TO_GIVE}", path.display())
        })?;
        Ok(Self { path, secret })
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The secret that the coordinator at `host` and `port` left.
    ///
    /// # Errors
    /// It is not there (yet), or it may be another user's.
    pub(super) fn read(host: &str, port: u16) -> Result<Secret> {
        let folder = home()?.join(FOLDER);
        // A network file system looks again for files that were missing only when the folder is
        // reopened.
        let _ = fs::read_dir(&folder).map(Iterator::count);
        let path = folder.join(file_name(host, port));
        let name = || path.display().to_string();
        let file = OpenOptions::new()
            .read(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(&path)
            .with_context(name)?;
        check_folder(&folder)?;
        check_file(&file).with_context(name)?;
        let mut text = Vec::new();
        file.take(LONGEST).read_to_end(&mut text).with_context(name)?;
        Secret::new(&text).map_err(|_| anyhow!("{}: it is no secret of pathline", path.display()))
    }
}

impl Drop for SecretFile {
    fn drop(&mut self) {
        // One that stays is replaced by the next run that meets there.
        let _ = fs::remove_file(&self.path);
    }
}

/// The folder of secrets, below the home folder.
const FOLDER: &str = ".local/state/pathline";

fn home() -> Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    home.filter(|home| home.is_dir()).ok_or_else(|| {
        anyhow!("HOME names no folder in which a secret could be left; {HOW_TO_GIVE}")
    })
}

fn file_name(host: &str, port: u16) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || ".-".contains(c) { c } else { '_' };
    format!("ranks-{}-{port}", host.chars().map(plain).collect::<String>())
}

/// A user who can write to the folder could link a known file of this user there.
fn check_folder(folder: &Path) -> Result<()> {
    let about = fs::metadata(folder).with_context(|| folder.display().to_string())?;
    let uid = rustix::process::geteuid().as_raw();
    if about.uid() != uid || about.mode() & 0o022 != 0 {
        return Err(anyhow!(
            "{} is owned by user {} with mode {:o}: it must be this user's ({uid}), and nobody else may \
             write to it (chmod 700)",
            folder.display(),
            about.uid(),
            about.mode() & 0o7777
        ));
    }
    Ok(())
}

/// A secret that others may have read, or written, is none.
fn check_file(file: &File) -> Result<()> {
    let about = file.metadata()?;
    let uid = rustix::process::geteuid().as_raw();
    if !about.is_file() || about.uid() != uid || about.mode() & 0o077 != 0 {
        return Err(anyhow!(
            "it is owned by user {} with mode {:o}: it must be a plain file of this user's ({uid}) \
             that nobody else may read or write (mode 600)",
            about.uid(),
            about.mode() & 0o7777
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_mac_is_hmac_sha256() {
        // RFC 4231, test case 2: key "Jefe".
        let mut mac = keyed(b"Jefe");
        mac.update(b"what do ya want for nothing?");
        assert_eq!(
            hex(&mac.finalize().into_bytes()),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn a_proof_is_of_one_role_one_secret_and_one_exchange() {
        let secret = Secret::new(b"0123456789abcdef").unwrap();
        let other = Secret::new(b"0123456789abcdeF").unwrap();
        let proof = secret.prove(Role::Rank, &[b"hello", b"nonce"]);
        assert!(secret.accepts(&proof, Role::Rank, &[b"hello", b"nonce"]));
        assert!(!secret.accepts(&proof, Role::Coordinator, &[b"hello", b"nonce"]));
        assert!(!other.accepts(&proof, Role::Rank, &[b"hello", b"nonce"]));
        assert!(!secret.accepts(&proof, Role::Rank, &[b"hello", b"other"]));
        // The same bytes in other parts.
        assert!(!secret.accepts(&proof, Role::Rank, &[b"hellon", b"once"]));
    }

    #[test]
    fn short_secrets_are_refused_and_not_shown() {
        let Err(error) = Secret::new(b" 0123456789abcde\n") else { panic!("15 characters") };
        let error = error.to_string();
        assert!(error.contains("15 characters") && error.contains("openssl rand"), "{error}");
        assert!(!error.contains("0123456789"), "{error}");
        assert!(Secret::new(b" 0123456789abcdef\n").is_ok());
    }

    #[test]
    fn digests_are_64_digits() {
        let digest = Digest::random().unwrap();
        assert_ne!(digest, Digest::random().unwrap());
        let text = String::from(digest);
        assert_eq!(text.len(), 64);
        assert_eq!(Digest::try_from(text.clone()), Ok(digest));
        for bad in [&text[1..], &format!("{text}0"), &text.replacen(&text[..1], "g", 1), "é"] {
            assert!(Digest::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_file_that_others_may_read_is_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        let open = |mode: u32| {
            fs::write(&path, [b'a'; 64]).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
            fs::set_permissions(&path, mode).unwrap();
            File::open(&path).unwrap()
        };
        assert!(check_file(&open(0o600)).is_ok());
        for mode in [0o640, 0o604, 0o620] {
            let error = check_file(&open(mode)).unwrap_err().to_string();
            assert!(error.contains(&format!("mode {mode:o}")) && error.contains("600"), "{error}");
        }
        assert!(check_file(&File::open(folder.path()).unwrap()).is_err(), "a folder");
        fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
            .unwrap();
        assert!(check_folder(folder.path()).unwrap_err().to_string().contains("chmod 700"));
    }

    #[test]
    fn names_of_hosts_are_no_paths() {
        assert_eq!(file_name("../../etc/x", 1), "ranks-.._.._etc_x-1");
        assert_eq!(file_name("::1", 4000), "ranks-__1-4000");
    }
}
