{{/*
The configuration of banditserve: what the values say, and where things are. Nothing secret is in it,
since Ray Serve logs it.
*/}}
{{- define "banditserve.config" -}}
{{- $config := deepCopy .Values.config }}
{{- $_ := set $config "host" "0.0.0.0" }}
{{- $_ := set $config "port" 8000 }}
{{- $_ := set $config "cache_dir" .Values.modelCache.mountPath }}
{{- $_ := set $config "state_dir" "/tmp/banditserve" }}
{{- $_ := set $config "drain_timeout_s" .Values.drainSeconds }}
{{- $_ := set $config "ray" (dict "address" "auto") }}
{{- $_ := set $config "metrics" (merge (dict "host" "0.0.0.0" "port" 9400) (default dict $config.metrics)) }}
{{- $_ := set $config "redis" (merge (default dict $config.redis) (fromYaml (include "banditserve.redisConfig" .))) }}
{{- range $part, $role := dict "ingress" "ingress" "policy" "ingress" "verifier" "verifier" }}
{{- $_ := set $config $part (default dict (index $config $part)) }}
{{- include "banditserve.place" (dict "part" (index $config $part) "role" $role) }}
{{- end }}
{{- with .Values.auth.apiKeys }}
{{- if .secretName }}
{{- $_ := set $config.ingress "api_keys_file" (printf "/etc/banditserve/api-keys/%s" .key) }}
{{- end }}
{{- end }}
{{- range $name, $drafter := $config.drafters }}
{{- if ne (default "worker" $drafter.placement) "in_process" }}
{{- include "banditserve.place" (dict "part" $drafter "role" "drafter") }}
{{- end }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{/* Have a part run on the nodes of a role, unless its selector names another. Renders nothing. */}}
{{- define "banditserve.place" -}}
{{- $own := default dict .part.label_selector }}
{{- $_ := set .part "label_selector" (merge $own (dict "banditserve/role" .role)) }}
{{- end }}

{{/* How the Policy reaches its Redis. */}}
{{- define "banditserve.redisConfig" -}}
{{- $redis := .Values.redis.policy -}}
url: {{ include "banditserve.redisUrl" (dict "root" . "which" "policy") }}
{{- with $redis.username }}
username: {{ . | quote }}
{{- end }}
{{- if $redis.password.secretName }}
password_file: /etc/banditserve/redis-policy/{{ $redis.password.key }}
{{- end }}
{{- if $redis.tls.secretName }}
tls_ca_file: /etc/banditserve/redis-policy-tls/ca.crt
{{- end }}
{{- end }}

{{/* What Ray Serve is told: one string for the operator. */}}
{{- define "banditserve.serveConfig" -}}
proxy_location: EveryNode
http_options:
  host: 0.0.0.0
  port: 8000
  keep_alive_timeout_s: {{ .Values.serve.keepAliveSeconds }}
logging_config:
  encoding: JSON
applications:
  - name: banditserve
    route_prefix: /
    import_path: cluster.kuberay:build
    args:
      {{- include "banditserve.config" . | nindent 6 }}
    deployments:
      - name: ingress
        # One a node: each node of the group has one, and no node's loss takes two.
        max_replicas_per_node: 1
      - name: policy
        # The new one is there before the old one goes.
        max_surge_percent: 100
{{- end }}
