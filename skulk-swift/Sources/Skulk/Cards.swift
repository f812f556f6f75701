// What is known about models that are not open? Cards, what they resolve to, and libraries of them.

import Foundation
internal import SkulkBindings

extension ModelCard {
    /// Reads the card in a `.toml` or `.json` file, before it returns. All that is wrong with it is the error's `detail`.
    public static func open(_ path: some PathConvertible) throws -> ModelCard {
        try call("cardOpen", ["path": try path.filePath])
    }

    /// Reads a card in TOML.
    public static func fromToml(_ text: String) throws -> ModelCard {
        try call("cardRead", ["text": text, "toml": true])
    }

    /// Reads a card in JSON.
    public static func fromJson(_ text: String) throws -> ModelCard {
        try call("cardRead", ["text": text, "toml": false])
    }

    /// The card of a local checkpoint, of which only headers and configurations are read, before this returns: some
    /// milliseconds, or more from a slow drive.
    public static func fromCheckpoint(_ path: some PathConvertible) throws -> ModelCard {
        try call("cardFromCheckpoint", ["path": try path.filePath])
    }

    /// The JSON Schema (draft 2020-12) of cards in TOML, for editors.
    public static func schema() throws -> String { try callText("cardSchema") }

    /// The card as indented JSON, in camelCase, with every field.
    public func toJson() throws -> String { try call("cardToJson", ["card": self]) }

    /// The card as TOML: without what is not known, and without `isCustom`.
    public func toToml() throws -> String { try call("cardToToml", ["card": self]) }

    /// Writes the card to a `.toml` or `.json` file, as a whole or not at all, before it returns.
    public func save(to path: some PathConvertible) throws {
        try callText("cardSave", ["card": self, "path": try path.filePath])
    }

    /// The name of the card's file: the id with `/` as `--`, and `.toml`.
    public var fileName: String {
        get throws { try call("cardFileName", ["card": self]) }
    }

    /// Parameters of the model, by its facts: of the decoder with embedding and head, and of the parts beside it. `nil`: the
    /// card has no facts, or they cannot be right, see `factFindings`.
    public var parameters: Int? {
        get throws { try call("cardParameters", ["card": self]) }
    }

    /// Bytes of all weights, by the card's facts and the bits of a weight that they or `quantization` say. `nil`: as of
    /// `parameters`, or nothing says how many bits.
    public var sizeByFacts: Int? {
        get throws { try call("cardSizeByFacts", ["card": self]) }
    }

    /// What is wrong with the card's facts: those that contradict each other, the card's other fields or its size, and those
    /// that are missing beside others. Plans then take the card for one without facts.
    public var factFindings: [CardFault] {
        get throws { try call("cardFactFindings", ["card": self]) }
    }

    /// What the model can do, and how it is spoken to.
    public func profile(options: ProfileOptions = .init()) throws -> Profile {
        try Profile.resolve(modelId, card: self, options: options)
    }
}

extension Profile {
    /// What a model can do, from its id and its card, where there is one.
    public static func resolve(
        _ modelId: String, card: ModelCard? = nil, options: ProfileOptions = .init()
    ) throws -> Profile {
        try call("profileResolve", ["modelId": modelId, "card": card, "options": options])
    }

    /// The profile to read requests by while nothing is known of the model: all is kept.
    public static func permissive() throws -> Profile { try call("profilePermissive") }

    /// What a request for reasoning means for this model.
    public func reasoning(effort: ReasoningEffort? = nil, enableThinking: Bool? = nil) throws -> Reasoning {
        try call(
            "profileReasoning", ["profile": self, "effort": effort, "enableThinking": enableThinking])
    }
}

/// Whether a model is to be run as Gemma 4, by its id, its family or anything that its card says.
public func isGemma4Family(_ modelId: String, card: ModelCard? = nil) throws -> Bool {
    try call("isGemma4Family", ["modelId": modelId, "card": card])
}

/// Cards by their model's id, in order: the built-in ones, and folders of yours over them.
///
/// A file that is no card stops nothing: it is one of the `problems`. Files are read and written before a call returns.
public final class CardLibrary: Sendable {
    private let raw: RawLibrary

    /// Searches the folders, and those in them; later ones override earlier ones.
    public init(_ folders: [String] = [], builtin: Bool = true) {
        raw = RawLibrary(builtin: builtin, folders: folders)
    }

    private func ask<T: Decodable>(_ name: String, _ given: Arguments = [:]) throws -> T {
        try readJSON(try native { try raw.ask(name: name, given: given.json()) })
    }

    /// The ids, in order.
    public var ids: [String] {
        get throws { try ask("ids") }
    }

    /// The card of a model.
    public func card(_ modelId: String) throws -> ModelCard? { try ask("get", ["modelId": modelId]) }

    /// Your folders, in their order.
    public var folders: [String] {
        get throws { try ask("folders") }
    }

    /// Why files are not among the cards. Each names its file.
    public var problems: [SkulkError] {
        get throws { (try ask("problems") as [Failure]).map { SkulkError($0, nil) } }
    }

    /// The file of a model's card; none for those that are built in.
    public func file(_ modelId: String) throws -> String? { try ask("file", ["modelId": modelId]) }

    /// Searches one more folder, whose cards override all that are there.
    public func addFolder(_ folder: some PathConvertible) throws {
        let _: Bool? = try ask("addFolder", ["folder": try folder.filePath])
    }

    /// Searches the folders again. Only files whose time or size changed are read.
    public func reload() throws { let _: Bool? = try ask("reload") }

    /// Writes a card into one of the library's folders, and tells the file.
    public func save(_ card: ModelCard, in folder: some PathConvertible) throws -> String {
        try ask("save", ["folder": try folder.filePath, "card": card])
    }

    /// Deletes the file of a card of yours; an earlier source's card shows again. False: there is none.
    public func remove(_ modelId: String) throws -> Bool { try ask("remove", ["modelId": modelId]) }
}
