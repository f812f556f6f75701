// Does the package read cards, and resolve them, as the software does whose cards it speaks? Cases as data.

import Foundation
import Skulk
import Testing

/// Fields of `runtime` that came after the reference.
private let later = "served_spec_"

@Suite struct SuiteCardTests {
    @Test(arguments: each("cards")) func shippedCardsAreWrittenAsTheReferenceWritesThem(one: Case) throws {
        let card = try card(one["card"])
        let text = try card.toToml()
        let json = try card.toJson()
        #expect(withoutLater(try JSON(json)) == one["card"])
        for again in [try ModelCard.fromToml(text), try ModelCard.fromJson(json)] {
            #expect(again == card)
            #expect(try again.toToml() == text && again.toJson() == json)
        }
    }

    @Test(arguments: each("cards_invalid")) func cardsAreAcceptedAndRefusedAsByTheReference(one: Case) throws {
        // Some cases cannot be written as TOML, and the reference was not run on some.
        if let toml = one["toml"].text, !one["viaToml"].isNull {
            try judge(one["viaToml"], one["input"]) { try ModelCard.fromToml(toml) }
        }
        if !one["viaCamelJson"].isNull {
            try judge(one["viaCamelJson"], one["input"]) { try card(camel(one["input"])) }
        }
    }

    /// Cards by file, the first of each.
    static let cards = Dictionary(each("cards").map { ($0["file"].text!, $0["card"]) }) { first, _ in first }

    @Test(arguments: each("profiles_builtin")) func shippedCardsResolveAsInTheReference(one: Case) throws {
        let card = try card(#require(Self.cards[one["file"].text!]))
        let id = one["modelId"].text!
        func resolved(_ options: ProfileOptions) throws -> JSON {
            try JSON(of: Profile.resolve(id, card: card, options: options))
        }
        #expect(try JSON(of: card.profile()) == one["profile"] && resolved(.init()) == one["profile"])
        #expect(
            try resolved(.init(tokenizerTools: true, tokenizerThinking: true)) == one["profileTokenizerToolsThinking"])
        #expect(try resolved(.init(hasMessages: true, hasTools: true)) == one["profileWithToolsRequest"])
        #expect(try isGemma4Family(id, card: card) == one["isGemma4Family"].bool)
    }

    @Test(arguments: each("profiles_synthetic")) func everyRuleResolvesAsInTheReference(one: Case) throws {
        let card = one["card"].isNull ? nil : try card(one["card"])
        let (tokenizer, request) = (one["tokenizer"], one["taskParams"])
        var options = ProfileOptions(
            tokenizerTools: tokenizer["hasToolCalling"].bool, tokenizerThinking: tokenizer["hasThinking"].bool)
        if !request.isNull {
            options.hasMessages = request["chatTemplateMessagesPresent"].bool ?? false
            options.hasTools = request["toolsPresent"].bool ?? false
        }
        let id = one["modelId"].text!
        #expect(try JSON(of: Profile.resolve(id, card: card, options: options)) == one["profile"])
        #expect(try isGemma4Family(id, card: card) == one["isGemma4Family"].bool)
    }

    static let profiles = suites("reasoning_params").map(\.1["profiles"])

    @Test(arguments: each("reasoning_params")) func requestsAreNormalisedAsInTheReference(one: Case) throws {
        let facts = try #require(Self.profiles.map { $0[one["profile"].text!] }.first { $0.fields["family"] != nil || $0.isNull })
        var profile = try Profile.permissive()
        if !facts.isNull {
            profile.supportsThinking = facts["supportsThinking"].bool!
            profile.supportsThinkingToggle = facts["supportsThinkingToggle"].bool!
            profile.defaultReasoningEffort = ReasoningEffort(rawValue: facts["defaultReasoningEffort"].text!)!
            profile.disabledReasoningEffort = ReasoningEffort(rawValue: facts["disabledReasoningEffort"].text!)!
        }
        let result = try profile.reasoning(
            effort: one["reasoningEffort"].text.flatMap(ReasoningEffort.init), enableThinking: one["enableThinking"].bool)
        #expect(result.effort?.rawValue == one["outEffort"].text)
        #expect(result.enableThinking == one["outEnableThinking"].bool)
    }
}

/// A card's JSON without the fields that the reference lacks, which must be empty.
private func withoutLater(_ card: JSON) -> JSON {
    var fields = card.fields
    if fields["facts"]?.isNull == true { fields.removeValue(forKey: "facts") }
    let runtime = fields["runtime"]?.fields
    let kept = runtime?.filter { !(snake($0.key).hasPrefix(later) && $0.value.isNull) }
    if let kept, !kept.isEmpty { fields["runtime"] = .object(kept) }
    return .object(fields)
}

private func camel(_ value: JSON) -> JSON {
    switch value {
    case .object(let own):
        let fields = own.map { key, value in
            (key.replacing(/_([a-z0-9]?)/) { $0.output.1.uppercased() }, camel(value))
        }
        return .object(Dictionary(uniqueKeysWithValues: fields))
    case .list(let own): return .list(own.map(camel))
    default: return value
    }
}

/// Compares one reading of a case with the reference's.
private func judge(_ expected: JSON, _ given: JSON, _ read: () throws -> ModelCard) throws {
    let accepted = expected["accepted"].bool!
    let all = Set(expected["errors"].items.map { [place($0), kind($0)] })
    let newer = all.filter { $0[1] == "unknown" && $0[0].hasPrefix("runtime.\(later)") }
    let errors = all.subtracting(newer)
    let card: ModelCard
    do {
        card = try read()
    } catch let error as SkulkError {
        #expect(error.kind == .cardInvalid)
        guard case .faults(let faults) = error.detail, !faults.isEmpty else {
            Issue.record("found no faults: \(error)")
            return
        }
        // The reference may fail without saying where.
        if !accepted && all.isEmpty { return }
        let own = faults.filter { isDeliberate($0, given) }
        #expect(!own.isEmpty || !accepted, "refused for \(faults); the reference accepts it")
        let found = faults.filter { !own.contains($0) }
            .map { [snake($0.field), $0.kind == .type ? "value" : $0.kind.rawValue] }
        #expect(Set(found) == errors)
        return
    }
    #expect(accepted || (!newer.isEmpty && errors.isEmpty), "accepted; the reference has \(expected.json)")
    if accepted { #expect(withoutLater(try JSON(card.toJson())) == expected["card"]) }
}

private func place(_ error: JSON) -> String {
    snake(error["field"].items.map { $0.text ?? "\($0.int!)" }.joined(separator: "."))
}

private func kind(_ error: JSON) -> String {
    let type = error["type"].text!
    let known = [
        "extra_forbidden": "unknown", "missing": "missing", "value_error": "value", "literal_error": "value",
    ]
    if let kind = known[type] { return kind }
    if type.hasPrefix("greater_than") { return "range" }
    precondition(type.hasSuffix("_type"), type)
    return "value"
}

/// A field in either spelling.
private func lookup(_ table: JSON, _ name: String) -> JSON {
    table.fields.first { snake($0.key) == name }?.value ?? .null
}

/// Whether this library refuses here what the reference accepts, for a documented reason that holds of the input's own
/// values.
private func isDeliberate(_ fault: CardFault, _ given: JSON) -> Bool {
    let path = snake(fault.field)
    let value = path.split(separator: ".").map(String.init).reduce(given) { value, step in
        if let at = Int(step) { return value.items.indices.contains(at) ? value[at] : .null }
        return lookup(value, step)
    }
    let runtime = lookup(given, "runtime")
    func named(_ name: String) -> Bool { !(lookup(runtime, name).text ?? "").isEmpty }
    func below(_ least: Double) -> Bool { value.double.map { $0 < least } ?? false }
    let heads = lookup(runtime, "mtp_heads").bool == true
    let drafts = ["mtp_sidecar_repo", "mtp_norm_convention", "mtp_concat_order"]
    switch (path, fault.kind) {
    case ("model_id", .value): return value.text == ""
    case ("placement.min_vram_gib", .range): return below(0)
    case ("placement.max_context_tokens", .range), ("runtime.served_spec_n_max", .range): return below(1)
    case ("runtime.mtp_heads", .conflict): return heads && !named("mtp_sidecar_repo")
    case ("runtime.assistant_model_repo", .conflict):
        return named("assistant_model_repo") && (heads || drafts.contains(where: named))
    case ("runtime.served_spec_draft_repo", .conflict): return !value.isNull && !named("served_spec_draft_file")
    case ("runtime.served_spec_draft_file", .conflict): return !value.isNull && !named("served_spec_draft_repo")
    case (_, .range): return path.hasSuffix("storage_size.in_bytes") && below(0)
    // Values of fields that the reference does not know at all.
    default: return [.type, .value].contains(fault.kind) && path.hasPrefix("runtime.\(later)") && !value.isNull
    }
}
