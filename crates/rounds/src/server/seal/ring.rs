//! The key ring: the keys that seal, the keys that open, and the keys derived from them for each purpose.

use std::{
    collections::VecDeque,
    fmt,
    path::Path,
    sync::{Mutex, PoisonError},
};

use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use zeroize::Zeroizing;

use super::Digest;

/// The shortest key that a ring accepts, in bytes.
pub(crate) const MIN_KEY_BYTES: usize = 32;

/// The keys of a server or a fleet: the first one seals, all of them open.
///
/// # Rotation
///
/// Replace a key in three steps, each on every instance before the next begins, and no flow is interrupted: append the
/// new key (it opens, the old one still seals), move it to the front (it seals, the old one still opens), and remove
/// the old one after a flow deadline has passed. [`Rounds::set_keys`](crate::Rounds::set_keys) does each step without a
/// restart.
///
/// # Retirement
///
/// A flow may last up to 30 days, and without the key that sealed its token it cannot continue. A server that keeps a
/// [register](crate::RoundsBuilder::register) knows which keys open flows use:
/// [`Rounds::change_keys`](crate::Rounds::change_keys) refuses to remove such a key, and says how many flows use it. Wait
/// until they have ended, or cancel them. Records of ended flows that a retired key sealed are still listed, and their
/// sealed parts no longer open.
///
/// # Secrets
///
/// Keys are at least 32 bytes, are wiped from memory on drop, and are never printed: `Debug` shows an id for each,
/// which distinguishes keys and reveals nothing about them. A token is never sealed with a key of the ring itself, but
/// with one derived from it for that purpose and audience.
///
/// ```
/// use rounds::KeyRing;
///
/// let old = "6f6c64206b657920207468697274792d74776f206279746573206c6f6e672e2e";
/// let new = "6e6577206b657920207468697274792d74776f206279746573206c6f6e672e2e";
/// let ring = KeyRing::from_hex([new, old])?; // `new` seals, both open
/// assert!(!format!("{ring:?}").contains(new));
/// # Ok::<(), rounds::keys::KeyError>(())
/// ```
#[derive(Clone)]
pub struct KeyRing {
    keys: Vec<Zeroizing<Vec<u8>>>,
    ephemeral: bool,
}

impl KeyRing {
    /// A ring of one random key that exists only in this process. [`Rounds::new`](crate::Rounds::new) uses it.
    ///
    /// A restart loses the key, and every open flow ends with the frozen error.
    ///
    /// # Panics
    ///
    /// If the operating system provides no randomness, because nothing can be sealed safely then.
    pub fn ephemeral() -> Self {
        let mut key = Zeroizing::new(vec![0; MIN_KEY_BYTES]);
        getrandom::fill(&mut key).expect("the operating system provides randomness");
        Self { keys: vec![key], ephemeral: true }
    }

    /// A ring of these keys. The first one seals.
    ///
    /// # Errors
    ///
    /// [`KeyError`] if there is no key, if one is shorter than 32 bytes, or if one is listed twice.
    pub fn from_bytes<K: AsRef<[u8]>>(keys: impl IntoIterator<Item = K>) -> Result<Self, KeyError> {
        let keys = keys.into_iter().map(|key| Zeroizing::new(key.as_ref().to_vec()));
        Self::from_keys(keys.zip(1..).map(|(key, place)| Ok((place, key))))
    }

    /// A ring of hex-encoded keys. The first one seals.
    ///
    /// # Errors
    ///
    /// [`KeyError`] as for [`from_bytes`](Self::from_bytes), and if a key is not hexadecimal.
    pub fn from_hex<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> Result<Self, KeyError> {
        let keys = keys.into_iter().zip(1..);
        Self::from_keys(keys.map(|(key, place)| Ok((place, decode_hex(key.as_ref(), place)?))))
    }

    /// A ring read from a file: one hex key a line; blank lines and lines that begin with `#` are ignored.
    ///
    /// `(umask 077; rounds keygen > keys)` writes such a file. A warning is logged if users other than its owner can
    /// read it.
    ///
    /// # Errors
    ///
    /// [`KeyError`] with the line that is wrong and why, or with the reason why the file could not be read.
    pub fn from_file(path: impl AsRef<Path>) -> Result<Self, KeyError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path)
            .map_err(|source| KeyError::Unreadable { path: path.display().to_string(), source })?;
        let text = Zeroizing::new(text);
        let lines = text.lines().map(str::trim).zip(1..);
        let keys = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
        let ring = Self::from_keys(keys.map(|(line, place)| Ok((place, decode_hex(line, place)?))))?;
        warn_if_open(path);
        Ok(ring)
    }

    fn from_keys(keys: impl Iterator<Item = Result<(usize, Zeroizing<Vec<u8>>), KeyError>>) -> Result<Self, KeyError> {
        let mut ring: Vec<(usize, Zeroizing<Vec<u8>>)> = Vec::new();
        for key in keys {
            let (place, key) = key?;
            if key.len() < MIN_KEY_BYTES {
                return Err(KeyError::Short { place, bytes: key.len() });
            }
            if let Some((first, _)) = ring.iter().find(|(_, known)| *known == key) {
                return Err(KeyError::Duplicate { place, first: *first });
            }
            ring.push((place, key));
        }
        if ring.is_empty() {
            return Err(KeyError::Empty);
        }
        Ok(Self { keys: ring.into_iter().map(|(_, key)| key).collect(), ephemeral: false })
    }

    /// Whether this ring was made by [`ephemeral`](Self::ephemeral).
    pub fn is_ephemeral(&self) -> bool {
        self.ephemeral
    }

    /// The keys of this ring for one purpose and audience.
    pub(crate) fn derive(&self, purpose: Purpose, audience: &str) -> DerivedRing {
        let keys: Vec<_> = self.keys.iter().map(|key| DerivedKey::new(key, purpose, audience)).collect();
        // Only the ids of token keys are ever looked up.
        if self.ephemeral && matches!(purpose, Purpose::State) {
            remember_ephemeral(keys.iter().map(|key| key.id));
        }
        DerivedRing { keys }
    }
}

/// Logs a warning if a key file can be read by users other than its owner. Checks regular files only, because the mode
/// of a pipe means something else.
#[cfg(unix)]
fn warn_if_open(path: &Path) {
    use std::os::unix::fs::MetadataExt as _;

    let Ok(file) = std::fs::metadata(path) else { return };
    if file.is_file() && file.mode() & 0o044 != 0 {
        let (path, mode) = (path.display(), file.mode() & 0o777);
        tracing::warn!(
            target: "rounds",
            "the key file {path} can be read by users other than its owner (mode {mode:o}), and a key lets its reader read and forge every \
             state: run `chmod 600` on it, and replace the key if another user may have read it"
        );
    }
}

#[cfg(not(unix))]
fn warn_if_open(_path: &Path) {}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ids = self.keys.iter().map(|key| {
            let mut id = KeyId::default();
            expand(key, &[b"rounds/ring-id/1"], &mut id);
            id.iter().map(|byte| format!("{byte:02x}")).collect::<String>()
        });
        f.write_str("KeyRing")?;
        f.debug_list().entries(ids).finish()
    }
}

/// Why a key ring could not be made. Keys are counted from one: lines of a file, positions otherwise.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// There is no key.
    #[error("the key ring is empty: it needs at least one key of {MIN_KEY_BYTES} bytes; `rounds keygen` prints one")]
    Empty,
    /// A key is too short.
    #[error("key {place} has {bytes} bytes and needs at least {MIN_KEY_BYTES}; `rounds keygen` prints a good one")]
    Short {
        /// The number of the key, or of its line in the file.
        place: usize,
        /// The length of the key in bytes.
        bytes: usize,
    },
    /// A key is in the ring twice.
    #[error("key {place} is the same as key {first}: remove one of them")]
    Duplicate {
        /// The number of the key, or of its line in the file.
        place: usize,
        /// The number of the first occurrence.
        first: usize,
    },
    /// A key is not hexadecimal.
    #[error("key {place} is not hexadecimal: {why}")]
    NotHex {
        /// The number of the key, or of its line in the file.
        place: usize,
        /// The problem with the key.
        why: &'static str,
    },
    /// The key file could not be read.
    #[error("cannot read the key file {path}")]
    Unreadable {
        /// The path of the file.
        path: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
}

/// The purpose of a derived key. Keys of different purposes are independent.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Purpose {
    /// Sealing `requestState`.
    State,
    /// Sealing the records of a ledger.
    Record,
    /// Sealing the messages between the instances of a fleet.
    Message,
}

impl Purpose {
    fn label(self) -> &'static [u8] {
        match self {
            Self::State => b"rounds/state/1\0",
            Self::Record => b"rounds/record/1\0",
            Self::Message => b"rounds/message/1\0",
        }
    }
}

/// The id of a derived key, as tokens contain it. It is derived from the derived key, so it reveals nothing about the
/// ring's key, and the same key with another audience has another id.
pub(crate) type KeyId = [u8; 8];

/// The keys of a ring, derived for one purpose and audience.
pub(crate) struct DerivedRing {
    keys: Vec<DerivedKey>,
}

impl DerivedRing {
    /// A ring of one key that is not derived.
    #[cfg(test)]
    pub(super) fn of_secret(id: KeyId, secret: [u8; 32]) -> Self {
        Self { keys: vec![DerivedKey { id, secret: Zeroizing::new(secret) }] }
    }

    pub(crate) fn sealing(&self) -> &DerivedKey {
        // A ring has at least one key: a `KeyRing` without one cannot be made.
        &self.keys[0]
    }

    /// All keys, the one that seals first.
    pub(crate) fn all(&self) -> &[DerivedKey] {
        &self.keys
    }

    pub(crate) fn find(&self, id: KeyId) -> Option<&DerivedKey> {
        self.keys.iter().find(|key| key.id == id)
    }
}

pub(crate) struct DerivedKey {
    pub(crate) id: KeyId,
    pub(crate) secret: Zeroizing<[u8; 32]>,
}

impl DerivedKey {
    fn new(key: &[u8], purpose: Purpose, audience: &str) -> Self {
        let mut secret = Zeroizing::new([0; 32]);
        // A label ends with a zero byte, so that different labels and audiences give different input.
        expand(key, &[purpose.label(), audience.as_bytes()], &mut secret[..]);
        let mut id = KeyId::default();
        expand(&secret[..], &[b"rounds/key-id/1"], &mut id);
        Self { id, secret }
    }

    /// The name of the flow that a client began with this idempotency key. Without the key of this ring it cannot be
    /// computed, so that a store cannot check guesses at what was said in the flow.
    pub(crate) fn flow(&self, principal: Option<Digest>, call: Digest, key: &str) -> [u8; 16] {
        let (mut flow, who) = ([0; 16], principal.as_ref().map_or(&[][..], |digest| digest.as_bytes()));
        let info: [&[u8]; 5] =
            [b"rounds/flow/1\0", &[u8::from(principal.is_some())], who, call.as_bytes(), key.as_bytes()];
        expand(&self.secret[..], &info, &mut flow);
        flow
    }

    /// The secret part of the id of the task that a leg becomes: the same on every instance with this key.
    pub(crate) fn task(&self, leg: Digest) -> [u8; 32] {
        let mut task = [0; 32];
        expand(&self.secret[..], &[b"rounds/task/1\0", leg.as_bytes()], &mut task);
        task
    }

    /// The id of a principal's share in a ledger: the same on every instance with this key, and impossible to compute
    /// without the key.
    pub(crate) fn share(&self, principal: Digest) -> [u8; 16] {
        let mut share = [0; 16];
        expand(&self.secret[..], &[b"rounds/share/1\0", principal.as_bytes()], &mut share);
        share
    }
}

fn expand(secret: &[u8], info: &[&[u8]], out: &mut [u8]) {
    let key = Salt::new(HKDF_SHA256, &[]).extract(secret);
    key.expand(info, Length(out.len()))
        .and_then(|okm| okm.fill(out))
        .expect("32 bytes are within what HKDF-SHA-256 can expand to");
}

/// How many bytes HKDF expands to.
struct Length(usize);

impl KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

/// The ids of this process's ephemeral keys, the newest last. With them the log distinguishes a token that another
/// `Rounds` of the same process sealed from a forged one.
static EPHEMERAL: Mutex<VecDeque<KeyId>> = Mutex::new(VecDeque::new());
const EPHEMERAL_KEPT: usize = 1024;

fn remember_ephemeral(ids: impl Iterator<Item = KeyId>) {
    let mut known = EPHEMERAL.lock().unwrap_or_else(PoisonError::into_inner);
    known.extend(ids);
    while known.len() > EPHEMERAL_KEPT {
        known.pop_front();
    }
}

/// Whether an ephemeral ring of this process has this key.
pub(crate) fn is_ephemeral_of_this_process(id: KeyId) -> bool {
    let known = EPHEMERAL.lock().unwrap_or_else(PoisonError::into_inner);
    known.contains(&id)
}

fn decode_hex(text: &str, place: usize) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let bad = |why| KeyError::NotHex { place, why };
    if !text.len().is_multiple_of(2) {
        return Err(bad("it has an odd number of digits"));
    }
    let mut key = Zeroizing::new(Vec::with_capacity(text.len() / 2));
    for pair in text.as_bytes().chunks_exact(2) {
        let digit = |byte: u8| char::from(byte).to_digit(16);
        match (digit(pair[0]), digit(pair[1])) {
            (Some(high), Some(low)) => key.push((high * 16 + low) as u8),
            _ => return Err(bad("it has a character other than 0-9 and a-f")),
        }
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: [u8; 32] = [1; 32];
    const B: [u8; 32] = [2; 32];

    fn written(text: &str) -> temporary::TempFile {
        temporary::TempFile::new(text)
    }

    #[test]
    fn each_way_to_get_a_ring_wrong_says_which_key_and_why() {
        let say = |ring: Result<KeyRing, KeyError>| ring.unwrap_err().to_string();
        assert!(say(KeyRing::from_bytes(Vec::<[u8; 32]>::new())).starts_with("the key ring is empty"));
        assert!(say(KeyRing::from_bytes([&A[..], &A[..31]])).starts_with("key 2 has 31 bytes and needs at least 32"));
        assert_eq!(say(KeyRing::from_bytes([A, B, A])), "key 3 is the same as key 1: remove one of them");
        assert_eq!(say(KeyRing::from_hex(["abc"])), "key 1 is not hexadecimal: it has an odd number of digits");
        assert_eq!(
            say(KeyRing::from_hex(["zz".repeat(32)])),
            "key 1 is not hexadecimal: it has a character other than 0-9 and a-f"
        );
        assert!(say(KeyRing::from_file("/no/such/file")).contains("/no/such/file"));
    }

    #[test]
    fn a_key_file_takes_comments_and_names_the_line_of_a_broken_key() {
        let key = "ab".repeat(32);
        let good = written(&format!("# the ring\n\n{key}\n  # retired soon\n{}\n", "cd".repeat(32)));
        assert_eq!(KeyRing::from_file(good.path()).unwrap().keys.len(), 2);
        let bad = written(&format!("# the ring\n{key}\n\nnonsense\n"));
        let said = KeyRing::from_file(bad.path()).unwrap_err().to_string();
        assert!(said.starts_with("key 4 is not hexadecimal"), "{said}");
        let twice = written(&format!("{key}\n#\n{key}\n"));
        let said = KeyRing::from_file(twice.path()).unwrap_err().to_string();
        assert_eq!(said, "key 3 is the same as key 1: remove one of them");
        assert!(matches!(KeyRing::from_file(written("# only a comment\n").path()), Err(KeyError::Empty)));
    }

    #[test]
    fn debug_prints_no_key() {
        let printed = format!("{:?}", KeyRing::from_bytes([A, B]).unwrap());
        let ids = printed.strip_prefix("KeyRing[\"").and_then(|rest| rest.strip_suffix("\"]")).unwrap();
        let (one, two) = ids.split_once("\", \"").unwrap();
        assert!(one.len() == 16 && two.len() == 16 && one != two, "{printed}");
        assert!(!printed.contains("0101") && !printed.contains("0202"), "{printed}");
    }

    #[test]
    fn the_audience_changes_the_key_and_its_id() {
        let ring = KeyRing::from_bytes([A]).unwrap();
        let one = ring.derive(Purpose::State, "one");
        assert_eq!(one.sealing().id, ring.derive(Purpose::State, "one").sealing().id);
        assert_ne!(one.sealing().id, ring.derive(Purpose::State, "two").sealing().id);
    }

    #[test]
    fn an_ephemeral_key_is_known_in_its_own_process() {
        let ring = KeyRing::ephemeral().derive(Purpose::State, "");
        assert!(is_ephemeral_of_this_process(ring.sealing().id));
        let shared = KeyRing::from_bytes([A]).unwrap().derive(Purpose::State, "");
        assert!(!is_ephemeral_of_this_process(shared.sealing().id));
    }

    /// A file that is removed at the end of the test.
    mod temporary {
        use std::{
            path::{Path, PathBuf},
            sync::atomic::{AtomicU32, Ordering},
        };

        pub(super) struct TempFile(PathBuf);

        impl TempFile {
            pub(super) fn new(text: &str) -> Self {
                static NEXT: AtomicU32 = AtomicU32::new(0);
                let name = format!("rounds-ring-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
                let path = std::env::temp_dir().join(name);
                std::fs::write(&path, text).unwrap();
                Self(path)
            }

            pub(super) fn path(&self) -> &Path {
                &self.0
            }
        }

        impl Drop for TempFile {
            fn drop(&mut self) {
                let _ = std::fs::remove_file(&self.0);
            }
        }
    }
}
