//! How does a test get a safetensors file or folder? This writes them, wrong ones too.

use std::path::Path;

/// A tensor to write: name, type label, shape, bytes.
pub type Tensor<'a> = (&'a str, &'a str, &'a [usize], &'a [u8]);

/// A file with these tensors, one after the other.
pub fn file(tensors: &[Tensor<'_>]) -> Vec<u8> {
    let mut data = Vec::new();
    let mut entries = Vec::new();
    for (name, dtype, shape, bytes) in tensors {
        let start = data.len();
        data.extend_from_slice(bytes);
        entries.push(format!(
            r#""{name}":{{"dtype":"{dtype}","shape":{shape:?},"data_offsets":[{start},{}]}}"#,
            data.len()
        ));
    }
    file_with_header(&format!("{{{}}}", entries.join(",")), &data)
}

/// A file with any header.
pub fn file_with_header(header: &str, data: &[u8]) -> Vec<u8> {
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header.as_bytes());
    file.extend(data);
    file
}

/// A folder with a `config.json`.
pub fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "config.json", br#"{"model_type":"llama"}"#);
    folder
}

/// Writes the index of a sharded folder: pairs of tensor and shard.
pub fn write_index(folder: &Path, entries: &[(&str, &str)]) {
    let map: Vec<String> = entries.iter().map(|(tensor, shard)| format!("{tensor:?}:{shard:?}")).collect();
    let index = format!(r#"{{"metadata":{{}},"weight_map":{{{}}}}}"#, map.join(","));
    write(folder, "model.safetensors.index.json", index.as_bytes());
}

pub fn write(folder: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(folder.join(name), bytes).unwrap();
}

/// A valid file with a tensor of each readable type and one of another.
pub fn small() -> Vec<u8> {
    file(&[
        ("norm", "F32", &[2], &[1; 8]),
        ("embed", "BF16", &[3, 2], &[2; 12]),
        ("up", "F16", &[2, 2], &[3; 8]),
        ("positions", "I64", &[2], &[4; 16]),
    ])
}
