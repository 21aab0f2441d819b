//! Container images: archives of `docker save` and OCI layouts.
//!
//! Such an archive is unpacked like any other; if what it holds is an image and not a root, its layers are applied to an
//! empty tree, one after the other. A layer removes what is below it by members named `.wh.<name>`, or `.wh..wh..opq` for
//! all of a folder. Those are obeyed before anything else of their layer, so that they never remove what it brings.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use roost_model::TemplateDefaults;
use serde::Deserialize;

use super::import::{ImportError, Meter};
use super::tree::Tree;
use super::unpack::{self, Whiteouts};

/// Descriptions are read into memory, so they have a limit.
const LARGEST_DESCRIPTION: u64 = 8 << 20;
const MOST_LAYERS: usize = 512;
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An image in a tree that an archive was unpacked to.
#[derive(Debug, PartialEq)]
pub(super) struct Image {
    /// The files of its layers, lowest first.
    layers: Vec<PathBuf>,
    config: Config,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    layers: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    digest: String,
    #[serde(default)]
    media_type: String,
    #[serde(default)]
    platform: Option<Platform>,
}

#[derive(Debug, Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Debug, Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

/// The part of an image's configuration that says how it is run.
#[derive(Debug, Default, PartialEq, Deserialize)]
struct Described {
    #[serde(default)]
    config: Option<Config>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Config {
    #[serde(default)]
    env: Option<Vec<String>>,
    #[serde(default)]
    working_dir: Option<String>,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    entrypoint: Option<Vec<String>>,
    #[serde(default)]
    cmd: Option<Vec<String>>,
}

fn malformed(text: impl Into<String>) -> ImportError {
    ImportError::Archive { source: io::Error::new(io::ErrorKind::InvalidData, text.into()) }
}

impl Image {
    /// Finds the image in a tree; nothing if the tree is a root itself.
    pub(super) fn find(tree: &Tree) -> Result<Option<Self>, ImportError> {
        let is_layout = is_there(tree, "oci-layout")? && is_there(tree, "index.json")?;
        if ["etc", "bin", "usr"]
            .into_iter()
            .map(|name| is_there(tree, name))
            .collect::<Result<Vec<_>, _>>()?
            .contains(&true)
        {
            return Ok(None);
        }
        if is_there(tree, "manifest.json")? {
            let mut saved: Vec<Saved> = described(tree, Path::new("manifest.json"))?;
            let Some(image) = saved.pop().filter(|_| saved.is_empty()) else {
                return Err(malformed(format!("the archive holds {} images: save one alone", saved.len() + 1)));
            };
            let layers = image.layers.iter().map(PathBuf::from).collect();
            return Self::of(tree, Path::new(&image.config), layers).map(Some);
        }
        if !is_layout {
            return Ok(None);
        }
        let manifest = manifest(tree)?;
        let layers = manifest.layers.iter().map(|layer| blob(&layer.digest)).collect::<Result<_, _>>()?;
        Self::of(tree, &blob(&manifest.config.digest)?, layers).map(Some)
    }

    fn of(tree: &Tree, config: &Path, layers: Vec<PathBuf>) -> Result<Self, ImportError> {
        if layers.is_empty() || layers.len() > MOST_LAYERS {
            return Err(malformed(format!("an image of {} layers", layers.len())));
        }
        let described: Described = described(tree, config)?;
        Ok(Self { layers, config: described.config.unwrap_or_default() })
    }

    /// Applies the layers to an empty tree.
    pub(super) fn apply(&self, source: &Tree, root: &Tree, meter: &mut Meter<'_>) -> Result<(), ImportError> {
        for layer in &self.layers {
            for whiteouts in [Whiteouts::Only, Whiteouts::Skipped] {
                let file = source.open_file(layer).map_err(ImportError::file(layer))?;
                unpack::unpack(Box::new(file), root, meter, whiteouts)?;
            }
        }
        Ok(())
    }

    /// What the image gives those who run it.
    pub(super) fn defaults(&self) -> TemplateDefaults {
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let mut env: BTreeMap<String, String> = BTreeMap::from([("PATH".to_owned(), PATH.to_owned())]);
        for variable in self.config.env.iter().flatten() {
            if let Some((name, value)) = variable.split_once('=').filter(|(name, _)| !name.is_empty()) {
                env.insert(name.to_owned(), value.to_owned());
            }
        }
        TemplateDefaults {
            user: Some(given(&self.config.user).unwrap_or_else(|| "root".to_owned())),
            workdir: Some(given(&self.config.working_dir).unwrap_or_else(|| "/".to_owned())),
            env,
            ..TemplateDefaults::default()
        }
    }

    /// What the image would start.
    pub(super) fn command(&self) -> Vec<String> {
        let Config { entrypoint, cmd, .. } = &self.config;
        entrypoint.iter().chain(cmd).flatten().cloned().collect()
    }
}

fn is_there(tree: &Tree, name: &str) -> Result<bool, ImportError> {
    let place = tree.place(Path::new(name), false).and_then(|place| place.ok_or(io::ErrorKind::InvalidFilename.into()));
    let kind = place.and_then(|place| place.kind()).map_err(ImportError::file(Path::new(name)))?;
    Ok(kind.is_some())
}

/// The manifest of a layout that fits this machine.
fn manifest(tree: &Tree) -> Result<Manifest, ImportError> {
    let mut path = PathBuf::from("index.json");
    // An index may lead to one for each kind of machine, and that to the manifest.
    for _ in 0..2 {
        let index: Index = described(tree, &path)?;
        let chosen = choose(&index.manifests, architecture())?;
        path = blob(&chosen.digest)?;
        if !chosen.media_type.contains("index") && !chosen.media_type.contains("manifest.list") {
            return described(tree, &path);
        }
    }
    Err(malformed("an index that leads to no image"))
}

fn choose<'a>(all: &'a [Descriptor], architecture: &str) -> Result<&'a Descriptor, ImportError> {
    let fits = |found: &&Descriptor| {
        found.platform.as_ref().is_none_or(|at| at.os == "linux" && at.architecture == architecture)
    };
    let mut fitting = all.iter().filter(fits);
    match (fitting.next(), fitting.next()) {
        (Some(one), None) => Ok(one),
        (None, _) => Err(malformed(format!("the archive holds no image for linux/{architecture}"))),
        (Some(_), Some(_)) => Err(malformed("the archive holds several images: save one alone")),
    }
}

/// This machine, as images name it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The file of a digest.
fn blob(digest: &str) -> Result<PathBuf, ImportError> {
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match digest.split_once(':') {
        Some((kind, hash)) if plain(kind) && plain(hash) => Ok(Path::new("blobs").join(kind).join(hash)),
        _ => Err(malformed(format!("`{digest}` is not a digest"))),
    }
}

fn described<T: for<'de> Deserialize<'de>>(tree: &Tree, path: &Path) -> Result<T, ImportError> {
    let file: File = tree.open_file(path).map_err(ImportError::file(path))?;
    let mut text = Vec::new();
    file.take(LARGEST_DESCRIPTION).read_to_end(&mut text).map_err(ImportError::file(path))?;
    serde_json::from_slice(&text)
        .map_err(|error| malformed(format!("`{}` is not what it should be: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(digest: &str, platform: Option<(&str, &str)>) -> Descriptor {
        let platform = platform.map(|(os, architecture)| Platform { architecture: architecture.into(), os: os.into() });
        Descriptor { digest: digest.into(), media_type: String::new(), platform }
    }

    #[test]
    fn the_image_for_this_machine_is_chosen() {
        let all = [
            descriptor("sha256:1", Some(("linux", "arm64"))),
            descriptor("sha256:2", Some(("linux", "amd64"))),
            descriptor("sha256:3", Some(("unknown", "unknown"))),
        ];
        assert_eq!(choose(&all, "amd64").unwrap().digest, "sha256:2");
        assert!(choose(&all, "riscv64").is_err());
        assert!(choose(&[descriptor("a:1", None), descriptor("a:2", None)], "amd64").is_err());
    }

    #[test]
    fn a_digest_names_a_file_and_nothing_else() {
        assert_eq!(blob("sha256:0abc").unwrap(), Path::new("blobs/sha256/0abc"));
        for bad in ["", "sha256", "sha256:", "sha256:../../etc/passwd", "../x:00", "sha256:a/b"] {
            assert!(blob(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_an_image_says_of_itself_is_kept() {
        let text = r#"{"config": {"Env": ["A=1=2", "BAD", "=x"], "WorkingDir": "", "User": "app:app",
                        "Entrypoint": ["/run"], "Cmd": ["a"]}, "other": 1}"#;
        let described: Described = serde_json::from_str(text).unwrap();
        let image = Image { layers: Vec::new(), config: described.config.unwrap() };
        let defaults = image.defaults();
        assert_eq!((defaults.user.as_deref(), defaults.workdir.as_deref()), (Some("app:app"), Some("/")));
        assert_eq!(
            defaults.env.into_iter().collect::<Vec<_>>(),
            [("A".into(), "1=2".into()), ("PATH".into(), PATH.into())]
        );
        assert_eq!(image.command(), ["/run", "a"]);
        let empty: Described = serde_json::from_str(r#"{"config": {"Env": null, "Cmd": null}}"#).unwrap();
        assert_eq!(empty.config, Some(Config::default()));
    }
}
