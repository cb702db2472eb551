-- What Argo CD makes of a Foo. Without this it gives a Foo no health at all and does not wait for it.
--
-- It goes into the ConfigMap argocd-cm (docs/gitops.md has a command for that), and needs no useOpenLibs there:
--
--   data:
--     resource.customizations.health.samplecontroller.k8s.io_Foo: |
--       (the text of this file, indented)

local status = obj.status or {}
local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local ready, reconciling, stalled = conditions.Ready, conditions.Reconciling, conditions.Stalled

local function health(word, message)
  return { status = word, message = message }
end

local function isTrue(condition)
  return condition ~= nil and condition.status == "True"
end

-- Argo CD says this by itself and in these words, but not of a Foo that is one of its hooks.
if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "Pending deletion")
end

-- No controller has looked at this Foo yet.
if ready == nil then
  return health("Progressing", "No controller has seen this Foo yet. Is foo-controller running?")
end
if ready.status == "Unknown" then
  return health("Progressing", ready.message)
end

-- Everything below speaks of the spec that the controller has seen. An older one's Healthy would end a sync
-- before it has had any effect.
if status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "Waiting for the controller to see the newest spec")
end

if (obj.spec or {}).paused then
  return health("Suspended", ready.message)
end
if isTrue(stalled) then
  return health("Degraded", stalled.message)
end
if isTrue(reconciling) then
  return health("Progressing", reconciling.message)
end
if isTrue(ready) then
  return health("Healthy", ready.message)
end
return health("Progressing", ready.message)
