-- The health of a Widget for Argo CD, which without this does not wait for it. It goes into the ConfigMap argocd-cm:
--
--   data:
--     resource.customizations.health.acme.example.com_Widget: |
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

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "Pending deletion")
end
if ready == nil then
  return health("Progressing", "No controller has seen this Widget yet. Is widget-controller running?")
end
if ready.status == "Unknown" then
  return health("Progressing", ready.message)
end
-- A status about an earlier spec would end a sync before it has had any effect.
if status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "Waiting for the controller to see the newest spec")
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
