// How are a model's blocks served to others? `serve` and `Server`.

internal import SkulkBindings

/// Serves the feed-forward blocks and experts of the checkpoint at `path` to other processes and machines, on threads of its
/// own: ``Model/load(_:options:placement:cancel:progress:)`` with the option `ffnAt` has them computed there. `cancel` and the
/// task's cancellation end loading within one layer.
public func serve(
    _ path: some PathConvertible, options: ServeOptions = .init(), cancel: CancelToken? = nil
) async throws -> Server {
    let (path, given) = (try path.filePath, try writeJSON(options, as: "options"))
    return Server(try await working(cancel) { try await RawServer.serve(path: path, given: given, cancel: $0) })
}

/// A server of feed-forward blocks and experts. When nobody holds it any more, it stops at once.
public final class Server: Sendable {
    private let raw: RawServer
    /// Where it listens, as the option `ffnAt` takes it.
    public let address: String

    init(_ raw: RawServer) { (self.raw, address) = (raw, raw.address()) }

    /// Numbers of what it did and holds, in the text format of OpenMetrics.
    public var metrics: String { raw.metrics() }

    /// Stops it: no connection is taken any more, requests that were begun are finished within `grace` seconds, and what is
    /// left then is cut off. Returns when all has ended.
    public func stop(grace: Double = 0) async throws { try await native { try await self.raw.stop(seconds: grace) } }

    /// Waits until it has stopped, as another task wants. Cancelling the task ends waiting, and the server goes on.
    public func wait() async throws { try await working(nil) { try await self.raw.wait(cancel: $0) } }
}

extension Server: CustomStringConvertible {
    /// Where it listens.
    public var description: String { address }
}
