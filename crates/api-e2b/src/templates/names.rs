//! E2B's names of templates and builds, and Roost's.

use roost_model::{Tag, TemplateId, TemplateRef};

use crate::error::E2bError;

/// The template that a client means: `name`, `name:tag`, `namespace/name:tag`.
///
/// There is one team here, so that a namespace says nothing and is left out. What E2B allows in a name beyond Roost's
/// alphabet becomes a dash.
pub(crate) fn template_name(text: &str) -> Result<TemplateRef, E2bError> {
    let bare = text.rsplit('/').next().unwrap_or(text);
    let (name, tag) = match bare.split_once(':') {
        Some((name, tag)) => (name, Some(tag)),
        None => (bare, None),
    };
    let name = name.trim().to_ascii_lowercase().replace(['_', '.'], "-");
    let refused = |error: &dyn std::fmt::Display| E2bError::bad_request(format!("`{text}`: {error}"));
    let tag = tag.map(|tag| tag.parse::<Tag>().map_err(|error| refused(&error))).transpose()?;
    let name = name.parse().map_err(|error| refused(&error))?;
    Ok(TemplateRef { name, tag: tag.filter(|tag| !tag.is_default()) })
}

/// Tags as a client sends them.
pub(crate) fn tags(texts: &[String]) -> Result<Vec<Tag>, E2bError> {
    let parsed = texts.iter().map(|text| text.parse::<Tag>());
    parsed.collect::<Result<_, _>>().map_err(|error| E2bError::bad_request(error.to_string()))
}

/// The id of a build as a UUID.
pub(crate) fn uuid(id: &TemplateId) -> String {
    let hex = format!("{:032x}", id.bits());
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

/// The id behind a UUID.
pub(crate) fn from_uuid(text: &str) -> Result<TemplateId, E2bError> {
    let refused = || E2bError::bad_request(format!("`{text}` is not the id of a build"));
    let hex = text.replace('-', "");
    if hex.len() != 32 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(refused());
    }
    u128::from_str_radix(&hex, 16).map(TemplateId::from_bits).map_err(|_| refused())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_all_forms_find_the_template() {
        for (text, expected) in [
            ("base", "base"),
            ("base:default", "base"),
            ("My_App.x:v1.2", "my-app-x:v1.2"),
            ("team/my-app:v1", "my-app:v1"),
        ] {
            assert_eq!(template_name(text).unwrap().to_string(), expected);
        }
        for bad in ["", "a b", "-x", "x:", "x:a b", &"a".repeat(60)] {
            assert_eq!(template_name(bad).unwrap_err().status(), 400, "{bad}");
        }
    }

    #[test]
    fn an_id_goes_out_as_a_uuid_and_comes_back() {
        let id = TemplateId::generate();
        let text = uuid(&id);
        assert_eq!(text.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert_eq!(from_uuid(&text).unwrap(), id);
        for bad in ["", "web", "0123", &format!("{text}0"), "+1234567-1234-1234-1234-123456789012"] {
            assert!(from_uuid(bad).is_err(), "{bad}");
        }
    }
}
