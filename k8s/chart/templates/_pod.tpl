{{/* The template of a pod of Ray: (root, role, pod); role head is the head. */}}
{{- define "banditserve.podTemplate" -}}
{{- $values := .root.Values }}
{{- $isHead := eq .role "head" -}}
metadata:
  labels:
    {{- include "banditserve.raySelector" .root | nindent 4 }}
    banditserve/role: {{ .role }}
  {{- with .pod.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  # Autoscaler v2 makes a new pod for one that has ended.
  restartPolicy: Never
  terminationGracePeriodSeconds: {{ ternary 60 (add $values.drainSeconds 60) $isHead }}
  {{- if not $isHead }}
  automountServiceAccountToken: false
  {{- end }}
  enableServiceLinks: false
  {{- with include "banditserve.priorityClass" . }}
  priorityClassName: {{ . }}
  {{- end }}
  {{- with $values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- range $field := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" }}
  {{- with index $.pod $field }}
  {{ $field }}:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: {{ $values.podSecurity.runAsUser }}
    runAsGroup: {{ $values.podSecurity.runAsGroup }}
    fsGroup: {{ $values.podSecurity.fsGroup }}
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- if $values.modelCache.fetch }}
  initContainers:
    - name: fetch-model
      {{- include "banditserve.container" (merge (dict "isFetching" true) .) | nindent 6 }}
      command: [banditserve, models, fetch, {{ $values.config.model | quote }}]
      resources:
        requests: {cpu: 100m, memory: 1Gi}
        limits: {memory: 4Gi}
  {{- end }}
  containers:
    - name: ray-{{ ternary "head" "worker" $isHead }}
      {{- include "banditserve.container" . | nindent 6 }}
      ports:
        {{- include "banditserve.ports" . | nindent 8 }}
      resources:
        {{- toYaml .pod.resources | nindent 8 }}
      livenessProbe:
        {{- include "banditserve.probe" (dict "root" .root "urls" (list "52365/api/local_raylet_healthz")) | nindent 8 }}
        initialDelaySeconds: 60
        failureThreshold: {{ $values.probes.livenessFailureThreshold }}
      readinessProbe:
        {{- if $isHead }}
        {{- include "banditserve.probe" (dict "root" .root "urls" (list "52365/api/local_raylet_healthz" "8265/api/gcs_healthz")) | nindent 8 }}
        initialDelaySeconds: 10
        failureThreshold: {{ $values.probes.headReadinessFailureThreshold }}
        {{- else }}
        {{- include "banditserve.probe" (dict "root" .root "urls" (list "52365/api/local_raylet_healthz" "8000/-/healthz")) | nindent 8 }}
        initialDelaySeconds: 10
        failureThreshold: {{ $values.probes.workerReadinessFailureThreshold }}
        {{- end }}
      {{- if not $isHead }}
      lifecycle:
        preStop:
          exec:
            # Ray's logs keep what it says; a hook has none of its own.
            command: [bash, -c, "exec python -m cluster.drain --seconds {{ $values.drainSeconds }} &>/proc/1/fd/1"]
      {{- end }}
  volumes:
    {{- include "banditserve.volumes" . | nindent 4 }}
{{- end }}

{{/* What all containers with our image have. */}}
{{- define "banditserve.container" -}}
image: {{ include "banditserve.image" (index .root.Values.image .pod.image) }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities: {drop: [ALL]}
env:
  {{- include "banditserve.env" . | nindent 2 }}
volumeMounts:
  {{- include "banditserve.volumeMounts" . | nindent 2 }}
{{- end }}

{{/* The environment of a pod of Ray. */}}
{{- define "banditserve.env" -}}
{{- $values := .root.Values -}}
- {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
- {name: BANDITSERVE_CACHE, value: {{ $values.modelCache.mountPath | quote }}}
- {name: GOMP_SPINCOUNT, value: "10000"}
- {name: RAY_USAGE_STATS_ENABLED, value: "0"}
- {name: RAY_SERVE_STOP_FAILED_ROLLING_UPDATES, value: "1"}
- {name: RAY_DASHBOARD_MAX_EVENTS_TO_CACHE, value: "1000"}
{{- if $values.serve.haProxy }}
- {name: RAY_SERVE_ENABLE_HA_PROXY, value: "1"}
{{- end }}
{{- /* Whoever fetches the model: a container of its own, or Serve's build of the application. */}}
{{- if and $values.modelCache.hubToken.secretName (or .isFetching (not $values.modelCache.fetch)) }}
{{- with $values.modelCache.hubToken }}
- {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: {{ .secretName }}, key: {{ .key }}}}}
{{- end }}
{{- end }}
{{- if and (eq .role "head") $values.gcsFaultTolerance.enabled $values.redis.gcs.tls.secretName }}
- {name: RAY_REDIS_CA_CERT, value: /etc/banditserve/redis-gcs-tls/ca.crt}
{{- end }}
{{- range $name, $value := .pod.env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{/* Ports of a pod of Ray; those of the head as the operator would add them. */}}
{{- define "banditserve.ports" -}}
{{- if eq .role "head" -}}
- {name: gcs-server, containerPort: 6379}
- {name: dashboard, containerPort: 8265}
- {name: client, containerPort: 10001}
- {name: as-metrics, containerPort: 44217}
- {name: dash-metrics, containerPort: 44227}
{{ end -}}
- {name: metrics, containerPort: 8080}
- {name: serve, containerPort: 8000}
{{- range $number := until (int (default 0 .pod.metricsPorts)) }}
- {name: own-metrics-{{ $number }}, containerPort: {{ add 9400 $number }}}
{{- end }}
{{- end }}

{{/* A probe that asks paths of this pod, all of which must say success. */}}
{{- define "banditserve.probe" -}}
{{- $asks := list }}
{{- range .urls }}
{{- $asks = append $asks (printf "wget --tries 1 -T 5 -q -O- http://localhost:%s | grep success" .) }}
{{- end -}}
exec:
  command: [bash, -c, {{ join " && " $asks | quote }}]
periodSeconds: {{ .root.Values.probes.periodSeconds }}
timeoutSeconds: {{ .root.Values.probes.timeoutSeconds }}
{{- end }}

{{/*
The secrets that are files in a pod of Ray, by volume: the secret and the one key of it that is needed.
Only the pods of those who read them have them: the Policy and Ingresses, and Ray's head.
*/}}
{{- define "banditserve.secretFiles" -}}
{{- $values := .root.Values }}
{{- $files := dict }}
{{- if eq .role "ingress" }}
{{- $_ := set $files "redis-policy" $values.redis.policy.password }}
{{- $_ := set $files "redis-policy-tls" (dict "secretName" $values.redis.policy.tls.secretName "key" "ca.crt") }}
{{- $_ := set $files "api-keys" $values.auth.apiKeys }}
{{- else if and (eq .role "head") $values.gcsFaultTolerance.enabled }}
{{- $_ := set $files "redis-gcs-tls" (dict "secretName" $values.redis.gcs.tls.secretName "key" "ca.crt") }}
{{- end }}
{{- range $volume, $file := $files }}
{{- if $file.secretName }}
{{ $volume }}: {{ toJson $file }}
{{- end }}
{{- end }}
{{- end }}

{{- define "banditserve.volumeMounts" -}}
- {name: model-cache, mountPath: {{ .root.Values.modelCache.mountPath }}}
- {name: ray-tmp, mountPath: /tmp/ray}
{{- if not .isFetching }}
{{- range $name, $_ := fromYaml (include "banditserve.secretFiles" .) }}
- {name: {{ $name }}, mountPath: /etc/banditserve/{{ $name }}, readOnly: true}
{{- end }}
{{- end }}
{{- with .pod.volumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "banditserve.volumes" -}}
{{- $cache := .root.Values.modelCache -}}
- name: model-cache
  {{- if eq $cache.type "persistentVolumeClaim" }}
  persistentVolumeClaim: {claimName: {{ $cache.claimName | default (printf "%s-models" (include "banditserve.name" .root)) }}}
  {{- else if eq $cache.type "hostPath" }}
  hostPath: {path: {{ $cache.hostPath }}, type: DirectoryOrCreate}
  {{- else }}
  emptyDir: {}
  {{- end }}
- name: ray-tmp
  emptyDir: {}
{{- range $name, $file := fromYaml (include "banditserve.secretFiles" .) }}
- name: {{ $name }}
  secret:
    secretName: {{ $file.secretName }}
    defaultMode: 0440
    items:
      - {key: {{ $file.key }}, path: {{ $file.key }}}
{{- end }}
{{- with .pod.volumes }}
{{ toYaml . }}
{{- end }}
{{- end }}
