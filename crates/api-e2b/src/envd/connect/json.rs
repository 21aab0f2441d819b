//! Reading proto3's JSON the tolerant way.
//!
//! Field names are camelCase, and snake_case as an alias where the two differ; unknown fields are ignored; `null` is
//! the default; numbers may be text; bytes are base64 of either alphabet, padded or not; enumerations are names or
//! numbers.

use std::fmt;

use base64::Engine;
use base64::alphabet::{STANDARD, URL_SAFE};
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A field that may be `null`.
pub(crate) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// Bytes, as base64.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Base64(pub(crate) Vec<u8>);

const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
const READ_STANDARD: GeneralPurpose = GeneralPurpose::new(&STANDARD, LENIENT);
const READ_URL_SAFE: GeneralPurpose = GeneralPurpose::new(&URL_SAFE, LENIENT);

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Base64;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("base64")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Base64, E> {
                let url_safe = text.bytes().any(|letter| matches!(letter, b'-' | b'_'));
                let engine = if url_safe { &READ_URL_SAFE } else { &READ_STANDARD };
                engine.decode(text).map(Base64).map_err(|error| E::custom(format!("not base64: {error}")))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

impl Serialize for Base64 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        base64_of(&self.0, serializer)
    }
}

/// Writes bytes as base64.
pub(crate) fn base64_of<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&base64::display::Base64Display::new(bytes, &base64::prelude::BASE64_STANDARD))
}

/// A whole number that may be text, or have a fraction of nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Uint32(pub(crate) u32);

impl<'de> Deserialize<'de> for Uint32 {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = integer(deserializer, "a whole number")?;
        u32::try_from(number).map(Self).map_err(|_| D::Error::custom(format!("{number} does not fit")))
    }
}

struct IntegerOr<'a>(&'a str);

fn integer<'de, D: Deserializer<'de>>(deserializer: D, what: &str) -> Result<i64, D::Error> {
    deserializer.deserialize_any(IntegerOr(what))
}

impl Visitor<'_> for IntegerOr<'_> {
    type Value = i64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<i64, E> {
        Ok(number)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<i64, E> {
        i64::try_from(number).map_err(|_| E::custom(format!("{number} does not fit")))
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<i64, E> {
        // Beyond this not every whole number is one of these.
        const EXACT: f64 = 9_007_199_254_740_992.0;
        if number.fract() != 0.0 || number.abs() > EXACT {
            return Err(E::custom(format!("{number} is not a whole number")));
        }
        format!("{number:.0}").parse().map_err(|_| E::custom(format!("{number} does not fit")))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<i64, E> {
        match text.parse() {
            Ok(number) => Ok(number),
            Err(_) => match text.parse() {
                Ok(number) => self.visit_f64(number),
                Err(_) => Err(E::custom(format!("`{text}` is not {}", self.0))),
            },
        }
    }
}

/// A value of an enumeration as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum EnumValue {
    Name(String),
    Number(i64),
}

impl<'de> Deserialize<'de> for EnumValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = EnumValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a name or a number")
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<EnumValue, E> {
                Ok(EnumValue::Number(number))
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<EnumValue, E> {
                IntegerOr("a number").visit_u64(number).map(EnumValue::Number)
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<EnumValue, E> {
                IntegerOr("a number").visit_f64(number).map(EnumValue::Number)
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<EnumValue, E> {
                Ok(text.parse().map_or_else(|_| EnumValue::Name(text.to_owned()), EnumValue::Number))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(text: &str) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::from_value::<Base64>(serde_json::json!(text)).map(|bytes| bytes.0)
    }

    #[test]
    fn base64_of_every_make_is_read() {
        for text in ["+/8=", "+/8", "-_8=", "-_8"] {
            assert_eq!(bytes(text).unwrap(), [0xfb, 0xff], "{text}");
        }
        assert_eq!(bytes("").unwrap(), Vec::<u8>::new());
        for text in ["+_8=", "a", "a b=", "===="] {
            assert!(bytes(text).is_err(), "{text}");
        }
        assert_eq!(serde_json::to_string(&Base64(vec![0xfb, 0xff])).unwrap(), r#""+/8=""#);
    }

    #[test]
    fn numbers_may_be_text() {
        let number = |text: &str| serde_json::from_str::<Uint32>(text).map(|number| number.0).ok();
        for text in ["42", "\"42\"", "42.0", "4.2e1", "\"42.0\""] {
            assert_eq!(number(text), Some(42), "{text}");
        }
        for text in ["-1", "4294967296", "1.5", "\"x\"", "\"\"", "true", "1e300", "\"NaN\"", "null"] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn enumerations_are_names_or_numbers() {
        let value = |text: &str| serde_json::from_str::<EnumValue>(text).unwrap();
        assert_eq!(value("\"SIGNAL_SIGKILL\""), EnumValue::Name("SIGNAL_SIGKILL".to_owned()));
        assert_eq!(value("9"), EnumValue::Number(9));
        assert_eq!(value("\"9\""), EnumValue::Number(9));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(data in proptest::collection::vec(any::<u8>(), 0..100)) {
            let text = serde_json::to_string(&Base64(data.clone())).unwrap();
            prop_assert_eq!(serde_json::from_str::<Base64>(&text).unwrap().0, data);
        }

        #[test]
        fn no_text_is_too_odd(text in ".*") {
            drop(bytes(&text));
            drop(serde_json::from_value::<Uint32>(serde_json::json!(text)));
            drop(serde_json::from_value::<EnumValue>(serde_json::json!(text)));
        }
    }
}
