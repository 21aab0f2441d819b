//! The secret that every connection to a guest begins with.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The 32-byte key of a sandbox, written as 64 hex digits.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Key([u8; 32]);

/// The text is not 64 hex digits. It does not repeat the text, which may be a secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("key is not 64 hex digits")]
pub struct InvalidKey;

impl Key {
    /// A key from raw bytes, which the caller took from a good source of randomness.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Reads 64 hex digits.
    pub fn from_hex(text: &str) -> Result<Self, InvalidKey> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(InvalidKey);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = pair.iter().try_fold(0u8, |value, &digit| {
                let nibble = (digit as char).to_digit(16).ok_or(InvalidKey)?;
                Ok((value << 4) | nibble as u8)
            })?;
        }
        Ok(Self(bytes))
    }

    /// The key as 64 lowercase hex digits.
    pub fn to_hex(&self) -> String {
        let nibble = |value: u8| char::from_digit(u32::from(value), 16).unwrap_or('0');
        self.0.iter().flat_map(|&byte| [nibble(byte >> 4), nibble(byte & 15)]).collect()
    }

    /// Compares without telling by its duration how much of the two agrees.
    pub fn matches(&self, other: &Key) -> bool {
        let difference = self.0.iter().zip(&other.0).fold(0u8, |sum, (a, b)| sum | std::hint::black_box(a ^ b));
        difference == 0
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

impl TryFrom<String> for Key {
    type Error = InvalidKey;

    fn try_from(text: String) -> Result<Self, InvalidKey> {
        Self::from_hex(&text)
    }
}

impl From<Key> for String {
    fn from(key: Key) -> Self {
        key.to_hex()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trip_and_comparison() {
        let key = Key::from_bytes(std::array::from_fn(|i| (i * 7 + 200) as u8));
        let same = Key::from_hex(&key.to_hex()).unwrap();
        assert!(key.matches(&same));
        assert!(!key.matches(&Key::from_bytes([0; 32])));
        assert_eq!(format!("{key:?}"), "Key(..)");
    }

    #[test]
    fn anything_else_is_refused() {
        for text in ["", "abc", &"g".repeat(64), &"a".repeat(63), &"é".repeat(32)] {
            assert_eq!(Key::from_hex(text).err(), Some(InvalidKey), "{text}");
        }
    }
}
