// How do options reach the library? As JSON, in which what hosts said in JSON keeps the order of its members.

/// Options, some of which are JSON.
protocol Ordered: Encodable {
    /// Those, by name.
    var ordered: [(String, JSONValue?)] { get }
    /// All but those.
    var others: Self { get }
}

extension GenerateOptions: Ordered {
    var ordered: [(String, JSONValue?)] { [("jsonSchema", jsonSchema), ("responseFormat", responseFormat)] }

    var others: Self {
        var others = self
        (others.jsonSchema, others.responseFormat) = (nil, nil)
        return others
    }
}

extension RenderOptions: Ordered {
    var ordered: [(String, JSONValue?)] {
        [("tools", tools.map(JSONValue.array)), ("documents", documents.map(JSONValue.array)), ("variables", variables)]
    }

    var others: Self {
        var others = self
        (others.tools, others.documents, others.variables) = (nil, nil, nil)
        return others
    }
}

extension ChatOptions: Ordered {
    var ordered: [(String, JSONValue?)] {
        [
            ("tools", tools.map(JSONValue.array)), ("documents", documents.map(JSONValue.array)),
            ("variables", variables), ("jsonSchema", jsonSchema), ("responseFormat", responseFormat),
        ]
    }

    var others: Self {
        var others = self
        (others.tools, others.documents, others.variables) = (nil, nil, nil)
        (others.jsonSchema, others.responseFormat) = (nil, nil)
        return others
    }
}

/// Options as the library reads them.
func optionsJSON(_ options: some Ordered, and rounds: ToolOptions? = nil) throws -> String {
    var fields = [try writeJSON(options.others, as: "options")]
    if let rounds { fields.append(try writeJSON(rounds, as: "options")) }
    fields = fields.map { String($0.dropFirst().dropLast()) }.filter { !$0.isEmpty }
    for case (let name, let value?) in options.ordered {
        // The library takes null for what is left out.
        guard value != .null || name == "variables" else {
            throw SkulkError(refusing: name, "expected JSON that says what a text must be, found null")
        }
        fields.append("\"\(name)\":\(try value.json(as: name))")
    }
    return "{\(fields.joined(separator: ","))}"
}
