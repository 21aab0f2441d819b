//! Identifiers: a kind prefix and a ULID, so that ids sort by birth and say what they name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Crockford's alphabet in lower case: no `i`, `l`, `o`, `u`, safe in file names and host names.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
const ULID_LENGTH: usize = 26;

/// Why a text is not an id of the wanted kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an id of the form `{prefix}…`")]
pub struct IdError {
    /// What was given.
    pub text: String,
    /// What it should start with.
    pub prefix: &'static str,
}

fn encode(mut value: u128) -> String {
    let mut digits = [0u8; ULID_LENGTH];
    for digit in digits.iter_mut().rev() {
        *digit = ALPHABET[(value & 31) as usize];
        value >>= 5;
    }
    digits.iter().map(|&byte| char::from(byte)).collect()
}

fn decode(text: &str) -> u128 {
    let digit = |byte: u8| ALPHABET.iter().position(|known| *known == byte).unwrap_or(0) as u128;
    text.bytes().fold(0, |value, byte| (value << 5) | digit(byte))
}

/// Puts 48 bits of milliseconds above 80 random bits.
fn compose(milliseconds: u64, random: u128) -> u128 {
    (u128::from(milliseconds) << 80) | (random & ((1 << 80) - 1))
}

fn random_bits() -> u128 {
    let mut bytes = [0u8; 16];
    // The kernel's generator fails only before it is seeded at boot, when no daemon runs yet.
    getrandom::fill(&mut bytes).expect("the kernel's random generator answers");
    u128::from_le_bytes(bytes)
}

fn is_ulid(text: &str) -> bool {
    text.len() == ULID_LENGTH && text.bytes().all(|byte| ALPHABET.contains(&byte))
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, utoipa::ToSchema)]
        #[schema(value_type = String)]
        pub struct $name(String);

        impl $name {
            /// What every id of this kind starts with.
            pub const PREFIX: &'static str = $prefix;

            /// Makes a new id from the wall clock and the kernel's randomness.
            pub fn generate() -> Self {
                let now = jiff::Timestamp::now().as_millisecond();
                Self::from_parts(u64::try_from(now).unwrap_or(0), random_bits())
            }

            /// Makes the id of a given moment and random bits; the same parts make the same id.
            pub fn from_parts(milliseconds: u64, random: u128) -> Self {
                Self(format!("{}{}", $prefix, encode(compose(milliseconds, random))))
            }

            /// The 128 bits of the id, for wires that have ids of another form.
            pub fn bits(&self) -> u128 {
                decode(self.0.strip_prefix($prefix).unwrap_or_default())
            }

            /// The id of these bits.
            pub fn from_bits(bits: u128) -> Self {
                Self(format!("{}{}", $prefix, encode(bits)))
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, IdError> {
                match text.strip_prefix($prefix) {
                    Some(rest) if is_ulid(rest) => Ok(Self(text.to_owned())),
                    _ => Err(IdError { text: text.to_owned(), prefix: $prefix }),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(
    /// Names one sandbox for ever; never reused.
    SandboxId, "sbx_"
);
id!(
    /// Names one checkpoint.
    CheckpointId, "ckp_"
);
id!(
    /// Names one process started through Roost.
    ExecId, "exe_"
);
id!(
    /// Names one template.
    TemplateId, "tpl_"
);
id!(
    /// Names one batch.
    BatchId, "bat_"
);
id!(
    /// Names one access token; not the secret itself.
    TokenId, "tok_"
);
id!(
    /// Names one public key that is let in.
    KeyId, "key_"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_round_trip() {
        let early = SandboxId::from_parts(1, 7);
        let late = SandboxId::from_parts(2, 0);
        assert!(early < late);
        assert_eq!(early.as_str().parse::<SandboxId>(), Ok(early.clone()));
        assert_eq!(early.as_str().len(), 30);
    }

    #[test]
    fn another_kind_is_refused() {
        let exec = ExecId::generate();
        assert!(exec.as_str().parse::<SandboxId>().is_err());
        assert!("sbx_short".parse::<SandboxId>().is_err());
        assert!("sbx_../../../../etc/passwd/xxxxx".parse::<SandboxId>().is_err());
    }

    #[test]
    fn bits_make_the_same_id_again() {
        for bits in [0, 1, u128::MAX, TemplateId::generate().bits()] {
            assert_eq!(TemplateId::from_bits(bits).bits(), bits);
        }
        let id = TemplateId::generate();
        assert_eq!(TemplateId::from_bits(id.bits()), id);
    }

    #[test]
    fn same_parts_make_the_same_id() {
        assert_eq!(ExecId::from_parts(5, 9), ExecId::from_parts(5, 9));
    }
}
