// Do other processes' servers compute what this one does not, and do conversations go on without them?

import Foundation
import Skulk
import Testing

private let mixtralPath = fixtures.appending(path: "mixtral").path
private let long = GenerateOptions(maxTokens: 200, temperature: 1.2, seed: 3, ignoreEos: true)

private func alone(_ path: String) async throws -> Model {
    try await Model.load(path, options: .init(threads: 1))
}

private func load(_ path: String, _ servers: Server..., key: String? = nil) async throws -> Model {
    try await Model.load(path, options: .init(ffnAt: servers.map(\.address), peerKey: key, peerTimeout: 5, threads: 1))
}

/// The text until the server was lost.
private func cutOff(
    _ session: Session, _ server: Server, _ options: GenerateOptions = long, cancel: CancelToken? = nil
) async throws -> String {
    var text = ""
    let error = try await failure(.peerLost) {
        for try await event in session.generate(prompt, options: options, cancel: cancel) {
            text += event.text
            try await server.stop()
        }
    }
    #expect(error.retry == .afterReplan && !text.isEmpty)
    return text
}

@Suite struct ServeTests {
    @Test(arguments: [storiesPath, mixtralPath]) func whatAServerComputesSaysTheSame(path: String) async throws {
        let server = try await serve(path, options: .init(threads: 1))
        let (model, alone) = (try await load(path, server), try await alone(path))
        #expect(model.stages[0].device.contains(server.address) && "\(server)" == server.address)
        let options = GenerateOptions(maxTokens: 24)
        #expect(
            try await model.generate(prompt, options: options).text()
                == alone.generate(prompt, options: options).text())
        #expect(try await model.logits(prompt) == alone.logits(prompt))
        #expect(server.metrics.contains("skulk_ffn"))
        try await server.stop()
    }

    @Test func linksAreMeasured() async throws {
        let server = try await serve(storiesPath, options: .init(key: "k", threads: 1))
        let (address, options) = (server.address, LinkOptions(key: "k"))
        let speed = try await Node.measureLink(address, options: options)
        #expect(speed.roundTripSeconds > 0 && speed.bytesPerSecond > 1e5)
        _ = try await failure(.peerFailed) { _ = try await Node.measureLink(address) }
        let error = try await failure(.invalidArgument) { _ = try await Node.measureLink("here") }
        #expect(error.context["field"] == "address")
        try await server.stop()
        _ = try await failure(.peerLost) { _ = try await Node.measureLink(address, options: options) }
    }

    @Test func serversShareLayersAndExperts() async throws {
        let first = try await serve(mixtralPath, options: .init(experts: 0..<4, threads: 1))
        let second = try await serve(mixtralPath, options: .init(layers: 1..<3, experts: 4..<8, threads: 1))
        let model = try await load(mixtralPath, first, second)
        #expect(model.stages[0].device.contains(first.address) && model.stages[0].device.contains(second.address))
        let options = GenerateOptions(maxTokens: 24)
        let expected = try await alone(mixtralPath).generate(prompt, options: options).text()
        #expect(try await model.generate(prompt, options: options).text() == expected)
        try await first.stop()
        try await second.stop()
    }

    @Test func aKeyIsAskedFor() async throws {
        try await temporary { folder in
            let socket = "unix://\(folder.path)/s"
            let server = try await serve(
                storiesPath, options: .init(listen: socket, key: "a-long-key", threads: 1))
            #expect(server.address == socket)
            let model = try await load(storiesPath, server, key: "a-long-key")
            #expect(try await !model.generate(prompt, options: .init(maxTokens: 4)).text().isEmpty)
            for key in ["another", nil] {
                let error = try await failure(.peerFailed) { _ = try await load(storiesPath, server, key: key) }
                #expect(error.retry == .afterReplan && error.code == "peer.failed")
                #expect(error.hint == "give the server's key with the option peerKey")
            }
            try await server.stop()
        }
    }

    @Test func aServerThatIsNotThereIsLost() async throws {
        let server = try await serve(storiesPath, options: .init(threads: 1))
        try await server.stop()
        let error = try await failure(.peerLost) { _ = try await load(storiesPath, server) }
        #expect(error.code == "peer.lost")
        // Nor is one that nobody holds.
        let address = try await serve(storiesPath, options: .init(threads: 1)).address
        _ = try await failure(.peerLost) {
            _ = try await Model.load(storiesPath, options: .init(ffnAt: [address], peerTimeout: 2))
        }
    }

    @Test(arguments: [(storiesPath, 5), (mixtralPath, 3)])
    func aConversationGoesOnElsewhere(path: String, layers: Int) async throws {
        let expected = try await alone(path).generate(prompt, options: long).output()
        let server = try await serve(path, options: .init(threads: 1))
        let session = try await load(path, server).session()
        let text = try await cutOff(session, server)
        let recovered = try await session.recover(Placement.byCounts([("cpu", layers)]))
        let rest = try await recovered.resume().output()
        #expect(text + rest.text == expected.text && rest.finish.usage.completionTokens == 200)
        #expect(try recovered.tokens.suffix(200) == expected.ids[...])
        let error = try await failure(.invalidArgument) { _ = try await recovered.resume().text() }
        #expect(error.message.contains("cut off"))
    }

    @Test func conversationsShareAModelThatWasPlacedOtherwise() async throws {
        let server = try await serve(storiesPath, options: .init(threads: 1))
        let model = try await load(storiesPath, server)
        let (first, second, token) = (try model.session(), try model.session(), CancelToken())
        let brief = GenerateOptions(maxTokens: 8)
        let text = try await cutOff(first, server, cancel: token)
        _ = try await failure(.peerLost) { _ = try await second.generate(prompt, options: brief).text() }
        // It was for what was cut off.
        token.cancel()
        let elsewhere = try await model.replan(Placement.byCounts([("cpu", 2), ("cpu", 3)]))
        #expect(elsewhere.stages.count == 2)
        let expected = try await elsewhere.generate(prompt, options: long).text()
        #expect(try await text + first.recoverIn(elsewhere).resume().text() == expected)
        #expect(
            try await second.recoverIn(elsewhere).resume().text()
                == elsewhere.generate(prompt, options: brief).text())
        let llama = try await alone(fixtures.appending(path: "llama").path)
        _ = try await failure(.sessionMismatch) { _ = try await first.recoverIn(llama) }
        _ = try await failure(.placementInvalid) { _ = try await first.recover(Placement.byCounts([("cpu", 4)])) }
    }

    @Test func whatResumesCanBeCancelled() async throws {
        let server = try await serve(storiesPath, options: .init(threads: 1))
        let session = try await load(storiesPath, server).session()
        _ = try await cutOff(session, server)
        let recovered = try await session.recover(Placement.byCounts([("cpu", 5)]))
        let token = CancelToken()
        token.cancel()
        _ = try await failure(.cancelled) { _ = try await recovered.resume(cancel: token).text() }
    }

    @Test func optionsOfServingThatCannotBeAreNamed() async throws {
        let wrong: [(String, ServeOptions)] = [
            ("listen", .init(listen: "ftp://here")), ("layers", .init(layers: 0..<9)), ("key", .init(key: "")),
            ("key", .init(listen: "http://0.0.0.0:0")), ("identity", .init(listen: "https://127.0.0.1:0")),
            ("identity", .init(listen: "https://127.0.0.1:0", identity: "none")),
            ("clients", .init(clients: "none")), ("maxRows", .init(maxRows: 0)),
        ]
        for (field, options) in wrong {
            let error = try await failure(.invalidArgument) { _ = try await serve(storiesPath, options: options) }
            #expect(error.context["field"] == field)
        }
        _ = try await failure(.fileNotFound) { _ = try await serve("no/such/model") }
        let token = CancelToken()
        token.cancel()
        _ = try await failure(.cancelled) { _ = try await serve(storiesPath, cancel: token) }
    }

    @Test func optionsOfPeersThatCannotBeAreNamed() async throws {
        let wrong: [(String, LoadOptions)] = [
            ("ffnAt", .init(ffnAt: ["here"])), ("peerRoots", .init(peerRoots: "none")),
            ("peerIdentity", .init(peerIdentity: "none")), ("peerTimeout", .init(peerTimeout: 0)),
        ]
        for (field, options) in wrong {
            let error = try await failure(.invalidArgument) { _ = try await Model.load(storiesPath, options: options) }
            #expect(error.context["field"] == field)
        }
    }

    @Test func aServerStopsOnceAndForAll() async throws {
        let server = try await serve(storiesPath, options: .init(threads: 1))
        let waiting = Task { try await server.wait() }
        for grace in [-1, .nan, .infinity] {
            let error = try await failure(.invalidArgument) { try await server.stop(grace: grace) }
            #expect(error.context["field"] == "grace")
        }
        try await server.stop(grace: 1)
        try await waiting.value
        try await server.stop()
        try await server.wait()
        #expect(server.metrics.contains("skulk_ffn"))
    }

    @Test func waitingEndsWithItsTask() async throws {
        let server = try await serve(storiesPath, options: .init(threads: 1))
        let waiting = Task { try await server.wait() }
        for _ in 0..<3 {
            let task = Task { try await server.wait() }
            try await Task.sleep(for: .milliseconds(10))
            task.cancel()
            _ = try await failure(.cancelled) { try await task.value }
        }
        _ = try await load(storiesPath, server)
        try await server.stop()
        try await waiting.value
        // Nor does a thread that waited keep one that nobody holds.
        let address = try await {
            let other = try await serve(storiesPath, options: .init(threads: 1))
            let task = Task { try await other.wait() }
            task.cancel()
            _ = try await failure(.cancelled) { try await task.value }
            return other.address
        }()
        _ = try await failure(.peerLost) {
            _ = try await Model.load(storiesPath, options: .init(ffnAt: [address], peerTimeout: 2))
        }
    }

    @Test func placementsHaveAddresses() async throws {
        let placement = try Placement.byCounts([("cpu", 3)])
        #expect(placement.addresses.isEmpty)
        var data = try object(placement.toJson())
        var instance = try #require(data["SkulkInstance"] as? [String: Any])
        instance["experts"] = [
            [
                "node": "shed", "resolvedBackend": "skulk-cpu", "startLayer": 0, "endLayer": 3, "startExpert": 0,
                "endExpert": 8, "nExperts": 8, "replica": false,
            ] as [String: Any]
        ]
        data["SkulkInstance"] = instance
        let shed = try Placement.fromJson(
            String(decoding: JSONSerialization.data(withJSONObject: data), as: UTF8.self))
        let server = try await serve(mixtralPath, options: .init(threads: 1))
        let there = try shed.withAddress("shed", server.address)
        #expect(try Placement.fromJson(there.toJson()).addresses == ["shed": server.address])
        let options = GenerateOptions(maxTokens: 8)
        let expected = try await alone(mixtralPath).generate(prompt, options: options).text()
        for model in [
            try await Model.load(mixtralPath, options: .init(threads: 1), placement: there),
            try await Model.load(
                mixtralPath, options: .init(addresses: ["shed": server.address], threads: 1), placement: shed),
        ] {
            #expect(try await model.generate(prompt, options: options).text() == expected)
        }
        let error = try await failure(.placementInvalid) { _ = try await Model.load(mixtralPath, placement: shed) }
        #expect(error.message.contains("shed"))
        try await server.stop()
    }
}
