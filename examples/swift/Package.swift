// swift-tools-version:6.0
import PackageDescription

let package = Package(
    name: "Examples",
    platforms: [.macOS(.v13)],
    dependencies: [.package(path: "../../skulk-swift")],
    targets: [
        .executableTarget(name: "chat", dependencies: [.product(name: "Skulk", package: "skulk-swift")]),
        .executableTarget(
            name: "conversations", dependencies: [.product(name: "Skulk", package: "skulk-swift")]),
    ],
    swiftLanguageModes: [.v6]
)
