//! What is a model called that lies at this path? After its place; what files say of themselves is free text.

use std::path::{Component, Path};

/// What the cache of `huggingface_hub` and the reference write for the `/` of an id.
const SLASH: &str = "--";
/// The name of what has none.
const NAMELESS: &str = "model";
/// How that cache marks folders of models.
const CACHED: &str = "models--";

/// The id of the model in a folder or file: `org/name` of the folder `org--name`, and of a snapshot in the cache of
/// `huggingface_hub`; else the name as it stands, without the ending of a file or a vindex.
pub(super) fn model_id(path: &Path) -> String {
    let whole = path.canonicalize();
    // A file of the cache is a link to a blob without a name: only its folder is to be resolved.
    let whole = whole.as_deref().ok().filter(|_| path.is_dir()).unwrap_or(path);
    let words: Vec<&str> = whole
        .components()
        .filter_map(|part| match part {
            Component::Normal(name) => name.to_str(),
            _ => None,
        })
        .collect();
    let cached = words.windows(2).rev().find_map(|pair| match pair {
        [repo, "snapshots"] => repo.strip_prefix(CACHED),
        _ => None,
    });
    let last = words.last().copied().unwrap_or(NAMELESS);
    let stem = [".safetensors", ".gguf", ".vindex"].iter().find_map(|ending| last.strip_suffix(ending));
    let name = cached.or(stem).unwrap_or(last);
    if name.is_empty() { NAMELESS.to_owned() } else { name.replacen(SLASH, "/", 1) }
}

/// The name in something like an id, where it is one rather than a path: `Llama-3.2-1B` of
/// `meta-llama/Llama-3.2-1B`.
pub(super) fn in_repository(id: &str) -> Option<&str> {
    let (organisation, name) = id.split_once('/')?;
    let is_word =
        |word: &str| !word.is_empty() && !word.starts_with(['.', '~']) && !word.contains(['/', '\\']);
    (is_word(organisation) && is_word(name)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_follow_from_places() {
        let ids = [
            ("models/Qwen3-8B-Q4_K_M.gguf", "Qwen3-8B-Q4_K_M"),
            ("models/acme--m.gguf", "acme/m"),
            ("hub/models--acme--m--x/snapshots/0123/m.gguf", "acme/m--x"),
            ("x.vindex", "x"),
            ("/", "model"),
            ("models/.gguf", "model"),
        ];
        for (path, id) in ids {
            assert_eq!(model_id(Path::new(path)), id, "{path}");
        }
        let folder = tempfile::tempdir().unwrap();
        let snapshot = folder.path().join("models--acme--m/snapshots/0123");
        std::fs::create_dir_all(&snapshot).unwrap();
        assert_eq!(model_id(&snapshot.join(".")), "acme/m");
    }

    #[test]
    fn paths_are_no_ids() {
        assert_eq!(in_repository("meta-llama/Llama-3.2-1B"), Some("Llama-3.2-1B"));
        for other in ["", "m", "/home/me", "./out", "a/b/c", "a/", "~/x", "../x"] {
            assert_eq!(in_repository(other), None, "{other}");
        }
    }
}
