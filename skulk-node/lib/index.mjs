// What does the package offer? The same as `index.js`, for ESM.

import skulk from "./index.js";

export const {
  CardLibrary,
  Cluster,
  Generation,
  Inventory,
  Model,
  ModelCard,
  Node,
  Placement,
  PlanReport,
  Profile,
  Session,
  SkulkError,
  Tokenizer,
  VindexReader,
  devices,
  errorKinds,
  extract,
  isGemma4Family,
  plan,
  planning,
  verifyVindex,
  version,
} = skulk;
