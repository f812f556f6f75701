// Which versions of the AI SDK's specification are there?

/** A version that there is. */
export function versionOf(specificationVersion) {
  if (["v4", "v3"].includes(specificationVersion)) return specificationVersion;
  throw new RangeError(`expected the specification v4 or v3, found ${specificationVersion}`);
}
