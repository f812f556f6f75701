//! Are down projections by features, where LARQL stored them, used for blocks of which a row takes the best features?

use skulk::{CancelToken, Checkpoint, EngineOptions, KvType, LoadOptions, Model, Precision, VindexReader};

use crate::vindex::{copied, is_computed, pairs, values};

/// Rows of one file are columns of the other, each quantised for itself: LARQL's 4 bits lose about a fourteenth, along
/// the row other bits than along the column. So predictions differ, but by less than half of what leaving out half of
/// the features costs.
#[test]
fn rows_by_features_are_columns_of_down() {
    for (made, source) in pairs() {
        let vindex = VindexReader::open(&made).unwrap();
        if !is_computed(&source) {
            continue;
        }
        let has_rows =
            |layer: &usize| vindex.tensor(&format!("layers.{layer}.mlp.down_features.weight")).is_some();
        for layer in (0..vindex.index().num_layers).filter(has_rows) {
            let tensor = |word| {
                let region = vindex.region(&format!("layers.{layer}.mlp.{word}.weight")).unwrap();
                (values(&region), region.shape()[0], region.row_len())
            };
            let (rows, features, hidden) = tensor("down_features");
            let (columns, _, width) = tensor("down_proj");
            let at = |i| rows[i % width * hidden + i / width];
            let square = |of: &dyn Fn(usize) -> f32| (0..width * hidden).map(|i| of(i).powi(2)).sum::<f32>();
            let apart = square(&|i| at(i) - columns[i]) / square(&|i| columns[i]);
            assert!(features >= width && apart.sqrt() < 0.15, "{}: {apart}", made.display());
        }
        // Layers of experts have none, and of LARQL's mixtures at 4 bits nothing can be run.
        if !(0..vindex.index().num_layers).all(|layer| has_rows(&layer)) {
            continue;
        }
        let without = copied(&made);
        for name in ["down_features_q4k.bin", "down_features_q4k_manifest.json"] {
            std::fs::remove_file(without.path().join(name)).unwrap();
        }
        let engine = EngineOptions::default().precision(Precision::Exact);
        let options = LoadOptions::default().kv(KvType::F32).context(64);
        let exact = Model::open(&made, &options.clone().engine_options(engine.clone())).unwrap();
        let width = exact.arch().layers[0].ffn.width;
        let options = options.engine_options(engine.ffn_top_features(width / 2));
        let [rows, columns] = [&*made, without.path()].map(|path| Model::open(path, &options).unwrap());
        let never = CancelToken::new();
        let text = "The model of a vindex folder takes the best features of each block, and no others.";
        let apart = rows.divergence(&columns, text, &never).unwrap();
        let sparse = columns.divergence(&exact, text, &never).unwrap();
        assert!(apart.max_kl > 0.0, "they are read from different files");
        assert!(apart.mean_kl < sparse.mean_kl / 2.0, "{apart:?} of {sparse:?}");
    }
}
