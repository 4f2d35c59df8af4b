{{/* What values.schema.json cannot say: how values fit each other. Renders nothing. */}}
{{- define "banditserve.check" -}}
{{- $name := include "banditserve.name" . }}
{{- if gt (len $name) 47 }}
{{- fail (printf "the RayService's name %q has %d characters, expected at most 47; set fullnameOverride" $name (len $name)) }}
{{- end }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}
{{- fail (printf "the RayService's name %q must begin with a letter and hold lower-case letters, digits and dashes; set fullnameOverride" $name) }}
{{- end }}
{{- range fromJsonArray (include "banditserve.groups" .) }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
{{- fail (printf "groups.%s: minReplicas %d is more than maxReplicas %d" .name (int .minReplicas) (int .maxReplicas)) }}
{{- end }}
{{- end }}
{{- $roles := dict "ingress" true "verifier" true }}
{{- range $drafter, $own := .Values.config.drafters }}
{{- if ne (default "worker" $own.placement) "in_process" }}
{{- $role := dig "label_selector" "banditserve/role" "drafter" $own }}
{{- $_ := set $roles $role true }}
{{- if not (hasKey $.Values.groups $role) }}
{{- fail (printf "config.drafters.%s: expected a group %s under groups, found none" $drafter $role) }}
{{- end }}
{{- end }}
{{- end }}
{{- range $group, $_ := .Values.groups }}
{{- if not (hasKey $roles $group) }}
{{- fail (printf "groups.%s: no drafter runs there, so its pods would never become ready; set it to null, or name it in a drafter's label_selector" $group) }}
{{- end }}
{{- end }}
{{- range $which := list "policy" "gcs" }}
{{- $redis := index $.Values.redis $which }}
{{- if and (not $redis.create) (not $redis.url) (or (eq $which "policy") $.Values.gcsFaultTolerance.enabled) }}
{{- fail (printf "redis.%s: expected create or a url, found neither" $which) }}
{{- end }}
{{- if and $redis.create $redis.tls.enabled (not $redis.tls.secretName) }}
{{- fail (printf "redis.%s.tls: a server with TLS needs secretName, a secret with tls.crt, tls.key and ca.crt" $which) }}
{{- end }}
{{- if and $redis.create (not $redis.password.secretName) }}
{{- fail (printf "redis.%s.password: a server needs secretName, a secret with its password" $which) }}
{{- end }}
{{- end }}
{{- with .Values.exposure }}
{{- if and (eq .type "gateway") (not .gateway.name) }}
{{- fail "exposure.gateway: expected the name of a Gateway, found none" }}
{{- end }}
{{- end }}
{{- if eq .Values.upgrade.strategy "NewClusterWithIncrementalUpgrade" }}
{{- if not .Values.upgrade.incremental.gatewayClassName }}
{{- fail "upgrade.incremental: expected gatewayClassName, found none" }}
{{- end }}
{{- if gt (int .Values.upgrade.incremental.stepSizePercent) (int .Values.upgrade.incremental.maxSurgePercent) }}
{{- fail "upgrade.incremental: stepSizePercent must be at most maxSurgePercent" }}
{{- end }}
{{- if ne .Values.exposure.type "none" }}
{{- fail "exposure: with NewClusterWithIncrementalUpgrade clients come through KubeRay's own Gateway; expected type none" }}
{{- end }}
{{- end }}
{{- end }}
