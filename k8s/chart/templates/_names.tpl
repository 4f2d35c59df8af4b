{{/* The RayService's name; everything else is named after it. */}}
{{- define "banditserve.name" -}}
{{ .Values.fullnameOverride | default .Release.Name }}
{{- end }}

{{/* Labels of every object of the release. */}}
{{- define "banditserve.labels" -}}
app.kubernetes.io/name: banditserve
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Labels that tell the release's pods from others. No version: it would make a new cluster. */}}
{{- define "banditserve.selector" -}}
banditserve/release: {{ include "banditserve.name" . }}
{{- end }}

{{/* Labels that all pods of Ray have, and nothing else of the release. */}}
{{- define "banditserve.raySelector" -}}
{{ include "banditserve.selector" . }}
banditserve/part: ray
{{- end }}

{{/* An image by repository and digest or tag. */}}
{{- define "banditserve.image" -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag }}{{ end }}
{{- end }}

{{/* The address of the Redis of (root, which), without its password. */}}
{{- define "banditserve.redisUrl" -}}
{{- $redis := index .root.Values.redis .which }}
{{- if $redis.create -}}
{{ ternary "rediss" "redis" $redis.tls.enabled }}://{{ include "banditserve.name" .root }}-redis-{{ .which }}:6379
{{- else -}}
{{ $redis.url }}
{{- end }}
{{- end }}

{{/* The groups with what they have by default, in an order that only grows at its end. */}}
{{- define "banditserve.groups" -}}
{{- $groups := list }}
{{- $first := list "ingress" "verifier" "drafter" }}
{{- $others := sortAlpha (without (keys .Values.groups) "ingress" "verifier" "drafter") }}
{{- range $name := concat $first $others }}
{{- $own := index $.Values.groups $name }}
{{- if kindIs "map" $own }}
{{- $pod := mergeOverwrite (deepCopy $.Values.podDefaults) (deepCopy $.Values.groupDefaults) (deepCopy $own) }}
{{- $groups = append $groups (set $pod "name" $name) }}
{{- end }}
{{- end }}
{{- $groups | toJson }}
{{- end }}

{{/* The most ports with series of ours that a pod of some group has. */}}
{{- define "banditserve.mostMetricsPorts" -}}
{{- $most := 0 }}
{{- range fromJsonArray (include "banditserve.groups" .) }}
{{- $most = max $most (int .metricsPorts) }}
{{- end }}
{{- $most }}
{{- end }}

{{/* The priority class of a pod; may be empty. */}}
{{- define "banditserve.priorityClass" -}}
{{- if .pod.priorityClassName }}{{ .pod.priorityClassName }}
{{- else if .root.Values.priorityClass.create }}{{ include "banditserve.name" .root }}-serving
{{- end }}
{{- end }}
