// Do texts keep to schemas, expressions and grammars that Swift gives?

import Foundation
import Skulk
import Testing

private struct Pair: Decodable { let z: Bool, a: [String] }

private let schema: JSONValue = [
    "type": "object",
    "properties": [
        "z": ["type": "boolean"], "a": ["type": "array", "items": ["enum": ["x", "y"]], "maxItems": 2],
    ],
    "required": ["z", "a"],
    "additionalProperties": false,
    "x-guidance": ["whitespace_flexible": false],
]
private let format: JSONValue = [
    "type": "json_schema", "json_schema": ["name": "za", "strict": true, "schema": schema],
]

private func model() async throws -> Model {
    let template = "{% for m in messages %}{{ m.content }}\n{% endfor %}"
    return try await Model.load(
        fixtures.appending(path: "llama"), options: .init(threads: 1, chatTemplate: template))
}

private func check(_ text: String) throws {
    let pair = try JSONValue(json: text).decoded(as: Pair.self)
    #expect(text.hasPrefix("{\"z\":") && pair.a.count <= 2 && pair.a.allSatisfy { ["x", "y"].contains($0) })
}

@Suite struct StructuredTests {
    @Test func jsonKeepsToItsSchema() async throws {
        let model = try await model()
        for choice in [GenerateOptions(), .init(temperature: 1, seed: 3), .init(temperature: 1, topK: 4)] {
            for (form, format) in [(schema, nil), (nil, format)] as [(JSONValue?, JSONValue?)] {
                var options = choice
                (options.maxTokens, options.jsonSchema, options.responseFormat) = (100, form, format)
                let output = try await model.generate("Once", options: options).output()
                try check(output.text)
                #expect(output.finish.reason == .eos)
                for result in try await model.generateBatch(["Once", "Twice"], options: options) {
                    try check(result.get().text)
                }
                let asked = ChatOptions(
                    maxTokens: 100, temperature: choice.temperature, seed: 3, jsonSchema: form, responseFormat: format)
                let answer = try await model.chat([.user("Once")], options: asked).answer()
                try check(answer.text)
                #expect(answer.finish.reason == .stop)
            }
        }
    }

    @Test func expressionsAndGrammars() async throws {
        let model = try await model()
        let text = try await model.generate("Once", options: .init(maxTokens: 20, regex: "[ab]{3}c?")).text()
        #expect(text.wholeMatch(of: /[ab]{3}c?/) != nil)
        let grammar = "start: word (\" \" word)~2\nword: \"yes\" | \"no\"\n"
        let options = GenerateOptions(maxTokens: 40, grammar: grammar)
        let words = try await model.session().generate("Once", options: options).text().split(separator: " ")
        #expect(words.count == 3 && words.allSatisfy { ["yes", "no"].contains($0) })
    }

    @Test(arguments: [
        (GenerateOptions(regex: "("), "regex"),
        (GenerateOptions(grammar: "start: nothing"), "grammar"),
        (GenerateOptions(jsonSchema: ["type": "tree"]), "jsonSchema"),
        (GenerateOptions(jsonSchema: ["maximum": .number(.infinity)]), "jsonSchema"),
        (GenerateOptions(responseFormat: ["type": "xml"]), "responseFormat.type"),
        (GenerateOptions(regex: "a", grammar: "start: \"a\""), "responseFormat"),
        (GenerateOptions(regex: "a", ignoreEos: true), "ignoreEos"),
    ])
    func whatCannotBeIsRefused(options: GenerateOptions, field: String) async throws {
        let model = try await model()
        let error = try await failure(.invalidArgument) {
            _ = try await model.generate("Once", options: options).text()
        }
        #expect(error.context["field"] == field)
    }
}
