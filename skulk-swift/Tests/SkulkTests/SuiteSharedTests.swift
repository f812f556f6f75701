// Do models write, errors say and folders hold here what they do in every language? Cases as data.

import Foundation
import Skulk
import Testing

/// Options of a case; none where Swift's types cannot say them: unknown names, other types, numbers above `Int.max`.
private func said<T: Codable>(_ given: JSON, as type: T.Type = T.self) -> T? {
    let given = given.isNull ? JSON.object([:]) : given
    let decoder = JSONDecoder()
    decoder.nonConformingFloatDecodingStrategy = .convertFromString(
        positiveInfinity: "Infinity", negativeInfinity: "-Infinity", nan: "NaN")
    let encoder = JSONEncoder()
    encoder.nonConformingFloatEncodingStrategy = .convertToString(
        positiveInfinity: "Infinity", negativeInfinity: "-Infinity", nan: "NaN")
    guard let options = try? decoder.decode(type, from: Data(given.json.utf8)),
        let again = try? JSON(data: encoder.encode(options)), again.known == given.known
    else { return nil }
    return options
}

private func canBeSaid(_ one: Case) -> Bool {
    let turns = one["turns"].items.allSatisfy { said($0["options"], as: GenerateOptions.self) != nil }
    return turns && said(one["load"], as: LoadOptions.self) != nil
}

private func load(_ path: String, _ given: JSON) async throws -> Model {
    var options: LoadOptions = try #require(said(given))
    options.threads = options.threads ?? 1
    return try await Model.load(root.appending(path: path), options: options)
}

private func input(_ prompt: JSON) -> Prompt { prompt.text.map(Prompt.text) ?? .tokens(prompt.items.map { $0.int! }) }

@Suite struct SuiteSharedTests {
    @Test(arguments: each("generation").filter(canBeSaid)) func modelsWriteTheSame(one: Case) async throws {
        let model = try await load(one["model"].text!, one["load"])
        let session = try model.session()
        for (asked, expected) in zip(one["turns"].items, one["expected"].items) {
            let found = try await turn(session, asked)
            #expect(found.known == expected.known)
        }
    }

    /// What is not asked because types refuse it, and nothing else.
    @Test func onlyWhatTypesRefuseIsLeftOut() {
        func leftOut(_ name: String, _ isSaid: (Case) -> Bool) -> Set<String> {
            Set(each(name).filter { $0.label.hasPrefix("own-") && !isSaid($0) }.map { $0["name"].text! })
        }
        #expect(leftOut("generation", canBeSaid) == ["drawn_of_few"])
        let errors = leftOut("errors") { one in
            switch one["call"].text {
            case "load": said(one["options"], as: LoadOptions.self) != nil
            case "generate": said(one["options"], as: GenerateOptions.self) != nil
            case "plan": said(one["options"], as: PlanOptions.self) != nil
            default: true
            }
        }
        #expect(
            errors == [
                "unknown_option", "option_of_no_kind", "wrong_type", "too_large", "fraction", "unknown_value",
                "generate_unknown_option", "stop_is_a_text", "plan_of_no_transport",
            ])
    }

    private func turn(_ session: Session, _ asked: JSON) async throws -> JSON {
        let generation = session.generate(input(asked["prompt"]), options: try #require(said(asked["options"])))
        let cancelAfter = asked["cancelAfter"].int
        var (events, text) = ([JSON](), "")
        do {
            for try await event in generation {
                var data = try JSON(of: event).fields
                if var finish = data["finish"]?.fields {
                    finish["timings"] = nil
                    data["finish"] = .object(finish)
                }
                events.append(.object(data))
                text += event.text
                guard events.count == cancelAfter else { continue }
                generation.cancel()
                generation.cancel()
            }
        } catch let error as SkulkError {
            // How many events come before it is a matter of time.
            return .object(["error": .text(error.code), "events": .list(Array(events.prefix(cancelAfter ?? .max)))])
        }
        return .object(["text": .text(text), "events": .list(events)])
    }

    @Test(arguments: each("errors")) func callsAreRefusedTheSame(one: Case) async throws {
        do {
            guard try await call(one) else { return }
            Issue.record("it was not refused")
        } catch let error as SkulkError {
            let field = error.context["field"].map { name in
                name.replacing(/_([a-z])/) { $0.output.1.uppercased() }
            }
            let found: [String: JSON] = [
                "code": .text(error.code), "kind": .text(error.kind.rawValue), "retry": .text(error.retry.rawValue),
                "field": field.map(JSON.text) ?? .null, "places": .list(error.context.keys.sorted().map(JSON.text)),
            ]
            #expect(JSON.object(found) == one["expected"])
        }
    }

    /// Whether Swift's types can say the call, which then was made.
    private func call(_ one: Case) async throws -> Bool {
        let path = root.appending(path: one["path"].text ?? "")
        switch one["call"].text! {
        case "load":
            guard said(one["options"], as: LoadOptions.self) != nil else { return false }
            _ = try await load(one["path"].text!, one["options"])
        case "generate":
            guard let options: GenerateOptions = said(one["options"]) else { return false }
            let model = try await load(one["path"].text!, one["load"])
            _ = try await model.generate(input(one["prompt"]), options: options).output()
        case "card": _ = try ModelCard.fromToml(one["toml"].text!)
        case "vindex": _ = try VindexReader(path)
        case "plan":
            guard let options: PlanOptions = said(one["options"]) else { return false }
            _ = try await plan(checkpoint: path, on: Cluster(nodes: [Node(id: "a")]), options: options)
        case let other: Issue.record("there is no such call: \(other)")
        }
        return true
    }

    @Test(arguments: each("vindex")) func foldersHoldTheSame(one: Case) async throws {
        let reader = try VindexReader(root.appending(path: one["path"].text!), threads: 1)
        let expected = one["expected"]
        var query = [Float](repeating: 0, count: reader.hiddenSize)
        query[0] = 1
        let tensors = reader.tensors.map { tensor in
            var tensor = tensor
            tensor.file = URL(filePath: tensor.file).lastPathComponent
            return tensor
        }
        #expect(try JSON(reader.index()).known == expected["index"].known)
        #expect(try JSON(of: reader.layers) == expected["layers"] && JSON(of: reader.lacks) == expected["lacks"])
        #expect(try JSON(of: reader.bands) == expected["bands"])
        #expect(try JSON(of: tensors).known == expected["tensors"].known)
        #expect(try await JSON(of: reader.parts()).known == expected["parts"].known)
        #expect(try await JSON(of: reader.feature(0, 0)).known == expected["feature"].known)
        #expect(try await JSON(of: reader.select(.init(limit: 3))).known == expected["select"].known)
        #expect(try await JSON(of: reader.nearest(to: query, options: .init(k: 2))).known == expected["nearest"].known)
    }
}
