// Does a program that exits in mid-work exit? While a model is loaded, and while generations run.

import Foundation
import Skulk

let path = CommandLine.arguments[1]
Task { try await Model.load(path) { _ in Thread.sleep(forTimeInterval: 0.05) } }
if CommandLine.arguments.contains("generating") {
    let model = try await Model.load(path)
    let generation = model.generate("Once upon a time", options: .init(ignoreEos: true))
    var events = generation.makeAsyncIterator()
    _ = try await events.next()
    Task { while try await events.next() != nil {} }
}
exit(0)
