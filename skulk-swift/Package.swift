// swift-tools-version:6.0
// What is built of the library, and tested.
import Foundation
import PackageDescription

// Apple's platforms take the XCFramework that `./xcframework` makes. Elsewhere, or without it, the linker is told where
// the static library is: `swift build -Xlinker -L/folder/of/libskulk_swift.a`.
let framework = "SkulkFFI.xcframework"
let isMade = FileManager.default.fileExists(atPath: Context.packageDirectory + "/" + framework)

let package = Package(
    name: "Skulk",
    platforms: [.macOS(.v13), .iOS(.v16)],
    products: [.library(name: "Skulk", targets: ["Skulk"])],
    targets: [
        isMade
            ? .binaryTarget(name: "SkulkFFI", path: framework)
            : .systemLibrary(name: "SkulkFFI"),
        // What is written here by a generator is in the language's former mode.
        .target(
            name: "SkulkBindings", dependencies: ["SkulkFFI"], swiftSettings: [.swiftLanguageMode(.v5)]),
        .target(name: "Skulk", dependencies: ["SkulkBindings"]),
        .testTarget(name: "SkulkTests", dependencies: ["Skulk"]),
    ],
    swiftLanguageModes: [.v6]
)
