{{- /* Names */ -}}

{{- define "skep.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "skep.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "skep.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "skep.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- /* A second object of the release. Takes (list $ "suffix"); stays within the 63 characters of a Service's name. */ -}}
{{- define "skep.named" -}}
{{- $suffix := last . -}}
{{- $room := sub 62 (len $suffix) | int -}}
{{- printf "%s-%s" (include "skep.fullname" (first .) | trunc $room | trimSuffix "-") $suffix -}}
{{- end -}}

{{- define "skep.serviceAccountName" -}}
{{- with .Values.operator.serviceAccount -}}
{{- if not (or .create .name) -}}
{{- fail "operator.serviceAccount.name is empty and operator.serviceAccount.create is false: name the ServiceAccount to use, or let the chart create one" -}}
{{- end -}}
{{- .name | default (include "skep.fullname" $) -}}
{{- end -}}
{{- end -}}

{{- /* Labels */ -}}

{{- /* Of a Deployment's pods. Takes (list $ "component"). */ -}}
{{- define "skep.selectorLabels" -}}
app.kubernetes.io/name: {{ include "skep.name" (first .) | quote }}
app.kubernetes.io/instance: {{ (first .).Release.Name | quote }}
app.kubernetes.io/component: {{ last . }}
{{- end -}}

{{- /* Of every object. Takes (list $ "component"). */ -}}
{{- define "skep.labels" -}}
helm.sh/chart: {{ printf "%s-%s" (first .).Chart.Name (first .).Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "skep.selectorLabels" . }}
app.kubernetes.io/version: {{ (first .).Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ (first .).Release.Service }}
app.kubernetes.io/part-of: skep
{{- end -}}

{{- /* Annotations of what exists only while the chart is uninstalled. Takes the weight. */ -}}
{{- define "skep.uninstallHook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- /* Decisions */ -}}

{{- /* "true" or "false". Unset follows the scope. */ -}}
{{- define "skep.migrator" -}}
{{- $cluster := eq .Values.operator.rbac.scope "cluster" -}}
{{- $wish := .Values.operator.features.storageVersionMigrator -}}
{{- if and $wish (not $cluster) -}}
{{- fail "operator.features.storageVersionMigrator is true and operator.rbac.scope is namespace: the migrator reads and patches CustomResourceDefinitions, which takes cluster-wide rights. Set operator.features.storageVersionMigrator=false, or operator.rbac.scope=cluster" -}}
{{- end -}}
{{- kindIs "invalid" $wish | ternary $cluster $wish -}}
{{- end -}}

{{- /* The allowed namespaces as a JSON list, each once. */ -}}
{{- define "skep.allowedNamespaces" -}}
{{- $namespaces := .Values.operator.rbac.allowedNamespaces | default list | uniq -}}
{{- if not $namespaces -}}
{{- fail "operator.rbac.allowedNamespaces is empty and operator.rbac.scope is namespace: list the namespaces to watch, or set operator.rbac.scope=cluster" -}}
{{- end -}}
{{- toJson $namespaces -}}
{{- end -}}

{{- /* A list of pull secrets as a JSON list of names. Takes (list "operator.thatValue" $value). */ -}}
{{- define "skep.pullSecrets" -}}
{{- $value := first . -}}
{{- $names := list -}}
{{- range $index, $entry := last . -}}
{{- $name := "" -}}
{{- if kindIs "string" $entry -}}
{{- $name = $entry -}}
{{- else if and (kindIs "map" $entry) (kindIs "string" $entry.name) -}}
{{- $name = $entry.name -}}
{{- end -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$" $name) -}}
{{- fail (printf "%s[%d]: %s is neither the name of a Secret nor an object with a name: write my-secret or {name: my-secret}" $value $index (toJson $entry)) -}}
{{- end -}}
{{- $names = append $names $name -}}
{{- end -}}
{{- toJson $names -}}
{{- end -}}

{{- /* Default Redis: addr, secret and key as a JSON object. A field of ours that is empty falls back to global.redis. */ -}}
{{- define "skep.defaultRedis" -}}
{{- $own := .Values.operator.defaultRedis | default dict -}}
{{- $shared := (.Values.global | default dict).redis | default dict -}}
{{- $addr := $own.addr -}}
{{- if and (not $addr) $shared.host -}}
{{- $addr = printf "%s:%d" $shared.host (int ($shared.port | default 6379)) -}}
{{- end -}}
{{- $secret := $own.existingSecret | default $shared.existingSecret -}}
{{- $key := $own.existingSecretKey | default $shared.existingSecretKey | default "redis-password" -}}
{{- dict "addr" ($addr | default "") "secret" ($secret | default "") "key" $key | toJson -}}
{{- end -}}

{{- /* Environment */ -}}

{{- /* What the chart sets. Its order is kept from release to release, so that an upgrade shows only what changed. */ -}}
{{- define "skep.managedEnv" -}}
- name: UNSTRUCTURED_LOGS
  value: "false"
- name: POD_NAMESPACE
  valueFrom:
    fieldRef:
      apiVersion: v1
      fieldPath: metadata.namespace
- name: TOOLHIVE_ENABLE_STORAGE_VERSION_MIGRATOR
  value: {{ include "skep.migrator" . | quote }}
{{- if eq .Values.operator.rbac.scope "namespace" }}
- name: WATCH_NAMESPACE
  value: {{ include "skep.allowedNamespaces" . | fromJsonArray | join "," | quote }}
{{- end }}
- name: TOOLHIVE_RUNNER_IMAGE
  value: {{ .Values.operator.toolhiveRunnerImage | quote }}
- name: VMCP_IMAGE
  value: {{ .Values.operator.vmcpImage | quote }}
- name: TOOLHIVE_PROXY_HOST
  value: {{ .Values.operator.proxyHost | quote }}
- name: TOOLHIVE_REGISTRY_API_IMAGE
  value: {{ .Values.registryAPI.image | quote }}
{{- with include "skep.pullSecrets" (list "operator.defaultImagePullSecrets" .Values.operator.defaultImagePullSecrets) | fromJsonArray }}
- name: TOOLHIVE_DEFAULT_IMAGE_PULL_SECRETS
  value: {{ join "," . | quote }}
{{- end }}
{{- $redis := include "skep.defaultRedis" . | fromJson }}
{{- if $redis.addr }}
- name: TOOLHIVE_DEFAULT_REDIS_ADDR
  value: {{ $redis.addr | quote }}
{{- if $redis.secret }}
- name: TOOLHIVE_DEFAULT_REDIS_SECRET_NAME
  value: {{ $redis.secret | quote }}
- name: TOOLHIVE_DEFAULT_REDIS_SECRET_KEY
  value: {{ $redis.key | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* The names in operator.env that the chart sets itself, as a JSON list. */ -}}
{{- define "skep.shadowedEnv" -}}
{{- $managed := list -}}
{{- range include "skep.managedEnv" . | fromYamlArray -}}
{{- $managed = append $managed .name -}}
{{- end -}}
{{- $shadowed := list -}}
{{- range .Values.operator.env -}}
{{- if has .name $managed -}}
{{- $shadowed = append $shadowed .name -}}
{{- end -}}
{{- end -}}
{{- toJson $shadowed -}}
{{- end -}}

{{- /* The user's entries, then the chart's. A name stands in it once: a second one is refused by server-side apply. */ -}}
{{- define "skep.env" -}}
{{- $shadowed := include "skep.shadowedEnv" . | fromJsonArray -}}
{{- range .Values.operator.env -}}
{{- if not (has .name $shadowed) }}
{{ list . | toYaml }}
{{- end -}}
{{- end }}
{{ include "skep.managedEnv" . }}
{{- end -}}
