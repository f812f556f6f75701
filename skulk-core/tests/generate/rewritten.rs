//! How does a test get a model that is no fixture? From one, with other tensors, in a folder of its own.

use std::path::Path;

use skulk::{DType, open_checkpoint};

use crate::fixtures::json;
use crate::generate::common::path;

/// A tensor to write: name, type, shape and bytes.
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
    pub(crate) bytes: Vec<u8>,
}

/// A folder with what `change` makes of a fixture's tensors and its number of layers.
pub(crate) fn rewritten(
    name: &str,
    change: impl FnOnce(Vec<Tensor>, &mut usize) -> Vec<Tensor>,
) -> tempfile::TempDir {
    let checkpoint = open_checkpoint(path(name)).unwrap();
    let tensor = |info: &skulk::TensorInfo| Tensor {
        name: info.name.clone(),
        dtype: info.dtype,
        shape: info.shape.clone(),
        bytes: checkpoint.region(&info.name).unwrap().bytes().to_vec(),
    };
    let mut config = json(&path(name).join("config.json"));
    let mut layers = config["num_hidden_layers"].as_u64().unwrap() as usize;
    let tensors = change(checkpoint.tensors().iter().map(tensor).collect(), &mut layers);
    config["num_hidden_layers"] = layers.into();
    let folder = tempfile::tempdir().unwrap();
    write(&tensors, &folder.path().join("model.safetensors"));
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    for file in ["tokenizer.json", "generation_config.json"] {
        std::fs::copy(path(name).join(file), folder.path().join(file)).unwrap();
    }
    folder
}

fn write(tensors: &[Tensor], to: &Path) {
    let mut header = serde_json::Map::new();
    let mut data = Vec::new();
    for Tensor { name, dtype, shape, bytes } in tensors {
        let (start, end) = (data.len(), data.len() + bytes.len());
        let dtype = dtype.to_string().to_uppercase();
        header.insert(
            name.clone(),
            serde_json::json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] }),
        );
        data.extend_from_slice(bytes);
    }
    let header = serde_json::Value::Object(header).to_string();
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat();
    std::fs::write(to, file).unwrap();
}

/// A fixture with its layers several times over: deep enough for a budget of a few blocks to be a small part.
pub(crate) fn deep(name: &str, times: usize) -> tempfile::TempDir {
    rewritten(name, |tensors, layers| {
        let n = *layers;
        *layers *= times;
        let mut all = Vec::new();
        for tensor in tensors {
            let parts: Vec<_> = tensor.name.split('.').collect();
            let Some(at) = parts.iter().position(|part| *part == "layers") else {
                all.push(tensor);
                continue;
            };
            let layer: usize = parts[at + 1].parse().unwrap();
            all.extend((0..times).map(|time| {
                let mut parts: Vec<_> = parts.iter().map(|part| (*part).to_owned()).collect();
                parts[at + 1] = (time * n + layer).to_string();
                let name = parts.join(".");
                Tensor { name, dtype: tensor.dtype, shape: tensor.shape.clone(), bytes: tensor.bytes.clone() }
            }));
        }
        all
    })
}
