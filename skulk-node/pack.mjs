// How is the package shipped? As one without native code, and one with it for this platform: `node pack.mjs FOLDER` writes
// both there, from `skulk-node.node` beside this file. Installing them compiles and downloads nothing.

import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";

import platforms from "./lib/platforms.js";

const HERE = path.dirname(fileURLToPath(import.meta.url));
const { scripts, devDependencies, ...described } = JSON.parse(readFileSync(path.join(HERE, "package.json"), "utf8"));
const { name, version, license, engines } = described;

const licences = ["LICENSE-MIT", "LICENSE-APACHE"];

/** Packs a folder that has these files of this one, and this description. */
function pack(out, description, files) {
  const folder = mkdtempSync(path.join(tmpdir(), "skulk-pack-"));
  try {
    for (const file of files) cpSync(path.join(HERE, file), path.join(folder, file), { recursive: true });
    for (const file of licences) cpSync(path.join(HERE, "..", file), path.join(folder, file));
    const native = path.join(folder, "skulk-node.node");
    if (files.includes("skulk-node.node") && process.platform !== "win32") execFileSync("strip", ["-x", native]);
    writeFileSync(path.join(folder, "package.json"), `${JSON.stringify(description, null, 2)}\n`);
    const args = ["pack", "--silent", "--pack-destination", path.resolve(out)];
    const [packed] = execFileSync("npm", args, { cwd: folder, shell: process.platform === "win32" }).toString().trim().split("\n");
    return path.join(out, packed);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

const [out = "dist"] = process.argv.slice(2);
mkdirSync(out, { recursive: true });
const { platform, arch } = process;
const here = platforms[`${platform}-${arch}`];
const native = {
  name: `${name}-${here}`,
  version,
  description: `The native module of ${name} for ${here}`,
  license,
  engines,
  main: "skulk-node.node",
  os: [platform],
  cpu: [arch],
  ...(here.endsWith("-gnu") ? { libc: ["glibc"] } : {}),
};
const all = Object.values(platforms).map((one) => [`${name}-${one}`, version]);
const files = [...described.files, ...licences];
const whole = { ...described, files, optionalDependencies: Object.fromEntries(all) };
console.log(pack(out, native, ["skulk-node.node"]));
console.log(pack(out, whole, described.files));
