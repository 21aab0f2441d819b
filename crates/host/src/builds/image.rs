//! Names of container images, and the templates that stand for them here.
//!
//! No registry is asked. An image is a template that was imported under its name: `python:3.11` is the template `python`
//! with the tag `3.11`. Registry and owner before the name are left out.

use roost_model::{Tag, TemplateRef};

/// What E2B's own base image is here.
const STAND_INS: [(&str, &str); 2] = [("e2bdev/base", "base"), ("e2bdev/code-interpreter", "code-interpreter-v1")];
const LATEST: &str = "latest";

/// The templates that may stand for an image, the best one first.
pub(super) fn templates_for(image: &str) -> Vec<TemplateRef> {
    let mut found = Vec::new();
    if let Some(own) = local_name(image) {
        let newest = own.tag.as_ref().is_none_or(|tag| tag.as_str() == LATEST);
        if own.tag.is_none() {
            found.extend(LATEST.parse::<Tag>().map(|tag| TemplateRef { tag: Some(tag), ..own.clone() }).ok());
        }
        found.push(own.clone());
        if newest && own.tag.is_some() {
            found.push(TemplateRef { tag: None, ..own });
        }
    }
    let plain = image.strip_suffix(":latest").unwrap_or(image);
    let plain = plain.strip_prefix("docker.io/").unwrap_or(plain);
    let stand_in = STAND_INS.iter().find(|(name, _)| *name == plain);
    if let Some((_, template)) = stand_in {
        // Not the imported `base` of somebody else, but what is built for it.
        found.retain(|found| found.name.as_str() != *template);
        found.extend(template.parse());
    }
    found
}

/// The name that an image is imported under.
fn local_name(image: &str) -> Option<TemplateRef> {
    // What is pinned by content is no name.
    if image.contains('@') {
        return None;
    }
    let last = image.rsplit('/').next().unwrap_or(image);
    last.to_ascii_lowercase().replace(['_', '.'], "-").parse::<TemplateRef>().ok().map(|mut named| {
        // A tag keeps its dots.
        named.tag = last.split_once(':').and_then(|(_, tag)| tag.parse::<Tag>().ok());
        named
    })
}

/// What to do about an image that is not here.
pub(super) fn how_to_import(image: &str) -> String {
    let name = local_name(image).map_or_else(|| "NAME:TAG".to_owned(), |named| named.to_string());
    format!(
        "image `{image}` is not on this host, and no registry is asked: save it elsewhere (`docker save {image} -o \
         image.tar`) and import it here (`roost template import {name} image.tar`), or start from a template, such as \
         `base`"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(image: &str) -> Vec<String> {
        templates_for(image).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_image_is_the_template_of_its_name() {
        assert_eq!(candidates("python:3.11"), ["python:3.11"]);
        assert_eq!(candidates("python"), ["python:latest", "python"]);
        assert_eq!(candidates("python:latest"), ["python:latest", "python"]);
        assert_eq!(candidates("registry.example:5000/team/My_App:v1.2"), ["my-app:v1.2"]);
        assert_eq!(candidates("e2bdev/base"), ["base"]);
        assert_eq!(candidates("e2bdev/base:latest"), ["base"]);
        assert!(candidates("python@sha256:0000").is_empty());
        assert!(candidates("").is_empty());
    }

    #[test]
    fn what_is_not_here_says_how_it_gets_here() {
        let text = how_to_import("library/python:3.11");
        assert!(text.contains("`roost template import python:3.11 image.tar`"), "{text}");
    }
}
