//! Do a card's fields agree with each other? What no field shows by itself.

use crate::strict::{FaultKind, Fields, Reader, Tree};

/// One drafter at most, and each with all it needs. `mtp_max_depth` bounds a drafter of any kind, and
/// `mtp_heads = false` is none.
pub(super) fn runtime<'a>(fields: &Fields<'a>, reader: &mut Reader<'a>) {
    let named = |name| matches!(fields.get(name), Some(Tree::Text(text)) if !text.is_empty());
    let heads = fields.get("mtp_heads") == Some(&Tree::Bool(true));
    let sidecar = ["mtp_sidecar_repo", "mtp_norm_convention", "mtp_concat_order"];

    let others: Vec<&str> = heads
        .then_some("mtp_heads")
        .into_iter()
        .chain(sidecar.into_iter().filter(|name| named(name)))
        .collect();
    if named("assistant_model_repo") && !others.is_empty() {
        let allowed = format!("no assistant beside {}: a model has one drafter", others.join(", "));
        fields.fault("assistant_model_repo", FaultKind::Conflict, &allowed, reader);
    }
    for (name, given, needed) in [
        ("mtp_heads", heads, "mtp_sidecar_repo"),
        ("served_spec_draft_repo", named("served_spec_draft_repo"), "served_spec_draft_file"),
        ("served_spec_draft_file", named("served_spec_draft_file"), "served_spec_draft_repo"),
    ] {
        if given && !named(needed) {
            fields.fault(name, FaultKind::Conflict, &format!("{needed} beside it"), reader);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::card::ModelCard;
    use crate::strict::{Fault, FaultKind};

    /// The faults of a small card with one section or field set.
    fn faults(field: &str, value: Value) -> Vec<Fault> {
        let mut card = json!({
            "model_id": "acme/small", "storage_size": {"in_bytes": 1}, "n_layers": 1, "hidden_size": 1,
            "supports_tensor": false, "tasks": [],
        });
        card[field] = value;
        match ModelCard::from_value(&card) {
            Ok(_) => Vec::new(),
            Err(error) => error.detail::<Vec<Fault>>().unwrap_or_else(|| panic!("{error}")).clone(),
        }
    }

    fn expect(field: &str, value: Value, at: &str, kind: FaultKind) {
        let found = faults(field, value.clone());
        assert_eq!(found.len(), 1, "{field} = {value}: {found:?}");
        assert_eq!((found[0].field.as_str(), found[0].kind), (at, kind), "{field} = {value}");
        assert!(!found[0].allowed.is_empty());
    }

    #[test]
    fn a_model_has_a_name() {
        expect("model_id", json!(""), "model_id", FaultKind::Value);
        assert!(faults("model_id", json!(" ")).is_empty());
    }

    #[test]
    fn sizes_are_not_negative() {
        expect("storage_size", json!({"in_bytes": -1}), "storage_size.in_bytes", FaultKind::Range);
        assert!(faults("storage_size", json!({})).is_empty());
        let component = |bytes: i64| {
            json!([{"component_name": "", "component_path": "", "can_shard": true,
                "storage_size": {"inBytes": bytes}}])
        };
        expect("components", component(-1), "components.0.storage_size.inBytes", FaultKind::Range);
        assert!(faults("components", component(0)).is_empty());
        for (name, value) in [("min_vram_gib", json!(-0.5)), ("max_context_tokens", json!(0))] {
            expect("placement", json!({name: value}), &format!("placement.{name}"), FaultKind::Range);
        }
        assert!(faults("placement", json!({"min_vram_gib": 0, "max_context_tokens": 1})).is_empty());
        for value in ["inf", "-inf", "nan", "-1"] {
            let toml = format!(
                "model_id = 'm'\nn_layers = 1\nhidden_size = 1\nsupports_tensor = true\ntasks = []\n\
                 placement.min_vram_gib = {value}\nstorage_size.in_bytes = 1"
            );
            let error = ModelCard::from_toml(&toml).unwrap_err();
            let Some(faults) = error.detail::<Vec<Fault>>() else { panic!("{error}") };
            assert_eq!(faults[0].kind, FaultKind::Range, "{value}");
        }
        // Unknown, not a size.
        assert!(faults("context_length", json!(-5)).is_empty());
        assert!(faults("runtime", json!({"mtp_max_depth": -5})).is_empty());
    }

    #[test]
    fn a_model_has_one_drafter() {
        let assisted = |name: &str, value: Value| json!({"assistant_model_repo": "a/b", name: value});
        for (name, value) in [
            ("mtp_sidecar_repo", json!("c/d")),
            ("mtp_norm_convention", json!("zero_centered")),
            ("mtp_concat_order", json!("embed_first")),
        ] {
            let runtime = assisted(name, value);
            expect("runtime", runtime, "runtime.assistant_model_repo", FaultKind::Conflict);
        }
        for (name, value) in [
            ("mtp_heads", json!(false)),
            ("mtp_max_depth", json!(2)),
            ("mtp_sidecar_repo", json!("")),
            ("served_spec_type", json!("draft_simple")),
        ] {
            assert!(faults("runtime", assisted(name, value)).is_empty(), "{name}");
        }
        let found = faults("runtime", assisted("mtp_heads", json!(true)));
        let fields: Vec<&str> = found.iter().map(|fault| fault.field.as_str()).collect();
        assert_eq!(fields, ["runtime.assistant_model_repo", "runtime.mtp_heads"]);
    }

    #[test]
    fn drafters_have_what_they_need() {
        expect("runtime", json!({"mtpHeads": true}), "runtime.mtpHeads", FaultKind::Conflict);
        let heads = json!({"mtp_heads": true, "mtp_sidecar_repo": ""});
        expect("runtime", heads, "runtime.mtp_heads", FaultKind::Conflict);
        assert!(faults("runtime", json!({"mtp_heads": true, "mtp_sidecar_repo": "a/b"})).is_empty());
        assert!(faults("runtime", json!({"mtp_sidecar_repo": "a/b"})).is_empty());

        for name in ["served_spec_draft_repo", "served_spec_draft_file"] {
            expect("runtime", json!({name: "a"}), &format!("runtime.{name}"), FaultKind::Conflict);
        }
        let both =
            json!({"served_spec_draft_repo": "a/b", "served_spec_draft_file": "c", "servedSpecNMax": 1});
        assert!(faults("runtime", both).is_empty());
        for count in [0, -1] {
            let at = "runtime.served_spec_n_max";
            expect("runtime", json!({"served_spec_n_max": count}), at, FaultKind::Range);
        }
    }
}
