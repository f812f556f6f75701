//! Does what was parsed keep its promises? What fuzzing and the regression tests both run on bytes
//! from anywhere.

use std::path::Path;

use skulk::Fault;
use skulk::vindex::{DownMeta, LayerHeader, VindexIndex, read_quant_manifest, read_weight_manifest};
use skulk::weights::gguf::{GgufHeader, GgufValue};
use skulk::weights::safetensors::SafetensorsHeader;
use skulk::{ErrorKind, ModelCard, TensorInfo};

/// Parses `bytes` as a GGUF file and, if they are one, reads everything the header says.
pub fn gguf(bytes: &[u8]) -> skulk::Result<()> {
    let header = GgufHeader::parse(bytes, Path::new("fuzz.gguf"))?;
    check_tensors(header.tensors(), bytes);
    let metadata = header.metadata();
    for key in metadata.keys() {
        let value = metadata.get(key);
        assert!(value.is_some(), "{key} is listed and absent");
        if let Some(GgufValue::Array(array)) = value {
            let bytes_read = array.strings().map_or(0, |s| s.map(str::len).sum());
            assert!(bytes_read <= bytes.len());
            let lengths = [
                array.strings().map(|s| s.count()).ok(),
                array.f64s().map(|s| s.count()).ok(),
                array.i64s().map(|s| s.count()).ok(),
                array.bools().map(|s| s.count()).ok(),
            ];
            assert!(lengths.into_iter().flatten().all(|n| n == array.len()));
        }
        // Whatever the type is, asking for another one is an error and nothing worse.
        let _ = (metadata.u64(key), metadata.f64(key), metadata.bool(key));
        let _ = (metadata.str(key), metadata.array(key));
    }
    Ok(())
}

/// Parses `bytes` as a safetensors file and checks what the header says.
pub fn safetensors(bytes: &[u8]) -> skulk::Result<()> {
    let header = SafetensorsHeader::parse(bytes, Path::new("fuzz.safetensors"))?;
    check_tensors(header.tensors(), bytes);
    for (name, _) in header.unreadable() {
        assert!(header.tensors().iter().all(|t| t.name != name));
    }
    Ok(())
}

/// Reads `bytes` as a model card in TOML and in JSON. A card that is one in either writes and reads back the same in
/// both; one that is not says why.
pub fn card(bytes: &[u8]) -> skulk::Result<()> {
    let text = String::from_utf8_lossy(bytes);
    let (toml, json) = (ModelCard::from_toml(&text), ModelCard::from_json(&text));
    for read in [&toml, &json] {
        match read {
            Ok(card) => check_card(card),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::CardInvalid, "{error}");
                match error.detail::<Vec<Fault>>() {
                    Some(faults) => assert!(!faults.is_empty()),
                    _ => assert!(error.context().iter().any(|(key, _)| *key == "line"), "{error}"),
                }
            }
        }
    }
    toml.or(json).map(drop)
}

/// Reads `bytes` as the index of a vindex and checks what it promises.
pub fn vindex_index(bytes: &[u8]) -> skulk::Result<()> {
    let index = VindexIndex::parse(bytes, Path::new("index.json"))?;
    assert!((1..=2).contains(&index.version));
    for layer in &index.layers {
        assert!(layer.layer < index.num_layers);
        let experts = layer.num_experts.unwrap_or(1);
        assert_eq!(layer.num_features % experts, 0);
    }
    Ok(())
}

/// Reads `bytes` as a manifest of a vindex, of either kind.
pub fn vindex_manifest(bytes: &[u8]) -> skulk::Result<()> {
    let path = Path::new("manifest.json");
    let (weights, quantised) = (read_weight_manifest(bytes, path), read_quant_manifest(bytes, path));
    for entry in weights.iter().flatten() {
        entry.kind().unwrap();
        assert!(!entry.file().is_empty());
    }
    for entry in quantised.iter().flatten() {
        let dtype = entry.dtype().unwrap();
        assert!(entry.shape[1].is_multiple_of(dtype.block_len()));
    }
    weights.map(drop).or(quantised.map(drop))
}

/// Reads `bytes` as a layer file of a vindex and checks that its matrices lie within it.
pub fn vindex_layer(bytes: &[u8]) -> skulk::Result<()> {
    let header = LayerHeader::parse(bytes, bytes.len() as u64, Path::new("layer_00.weights"))?;
    for entry in header.entries.iter().filter(|entry| !entry.is_absent()) {
        for (offset, len) in [(entry.gate_up_offset, entry.gate_up_len), (entry.down_offset, entry.down_len)]
        {
            assert!(offset >= 24 && offset.checked_add(len).is_some_and(|end| end <= bytes.len() as u64));
        }
    }
    Ok(())
}

/// Reads `bytes` as what the features of a vindex write, in binary and as lines of JSON, and asks for all of it.
pub fn vindex_down_meta(bytes: &[u8]) -> skulk::Result<()> {
    let binary = DownMeta::parse(bytes.to_vec(), Path::new("down_meta.bin"));
    let lines = DownMeta::parse_lines(bytes, Path::new("down_meta.jsonl"));
    // Layers and features of lines are any numbers: only the first ones are asked for.
    for meta in binary.iter().chain(&lines) {
        for layer in 0..meta.num_layers().min(bytes.len()) {
            for feature in 0..meta.num_features(layer).min(1 + bytes.len() / 8) {
                if let Some(feature) = meta.feature(layer, feature) {
                    assert!(feature.tokens.len() <= meta.top_k().min(bytes.len() / 8));
                }
            }
            assert_eq!(meta.feature(layer, meta.num_features(layer)), None);
        }
    }
    match binary {
        Err(_) if lines.is_ok() => Ok(()),
        binary => binary.map(drop),
    }
}

fn check_card(card: &ModelCard) {
    card.check().unwrap();
    let json = card.to_json();
    let again = ModelCard::from_json(&json).unwrap();
    assert_eq!(&again, card);
    assert_eq!(again.to_json(), json);

    let toml = card.to_toml().unwrap();
    let again = ModelCard::from_toml(&toml).unwrap();
    let mut shared = card.clone();
    shared.is_custom = false;
    assert_eq!(again, shared);
    assert_eq!(again.to_toml().unwrap(), toml);
    // Whatever the name is, it stays in its folder.
    if let Ok(name) = card.file_name() {
        assert_eq!(Path::new(&name).file_name(), Some(name.as_ref()));
    }
}

/// Sorted by name, apart from each other, inside the file, and as large as their shapes say.
fn check_tensors(tensors: &[TensorInfo], bytes: &[u8]) {
    assert!(tensors.windows(2).all(|pair| pair[0].name < pair[1].name));
    let mut ranges = Vec::new();
    for tensor in tensors {
        let (row_len, outer) = tensor.shape.split_last().unwrap_or((&1, &[]));
        let rows = outer.iter().try_fold(1usize, |n, &dim| n.checked_mul(dim));
        let row_bytes = tensor.dtype.row_bytes(*row_len);
        let len = rows.zip(row_bytes).and_then(|(n, len)| n.checked_mul(len));
        assert_eq!(len.map(|len| len as u64), Some(tensor.len), "{tensor:?}");
        let end = tensor.offset.checked_add(tensor.len);
        assert!(end.is_some_and(|end| end <= bytes.len() as u64), "{tensor:?}");
        if tensor.len > 0 {
            ranges.push((tensor.offset, tensor.offset + tensor.len));
        }
    }
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
}
