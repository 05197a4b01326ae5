{{/* What the names of all objects begin with. */}}
{{- define "ferroscope.fullname" -}}
{{- $name := .Values.fullnameOverride | default .Release.Name -}}
{{- if not (or .Values.fullnameOverride (contains .Chart.Name $name)) }}{{ $name = printf "%s-%s" $name .Chart.Name }}{{ end -}}
{{- $name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* Labels that select the pods of a component: root, component. */}}
{{- define "ferroscope.selector" -}}
app.kubernetes.io/name: ferroscope
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{/* Labels of the release, on every object. */}}
{{- define "ferroscope.common" -}}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* All labels of an object: root, component. */}}
{{- define "ferroscope.labels" -}}
{{ include "ferroscope.selector" . }}
{{ include "ferroscope.common" .root }}
{{- end }}

{{- define "ferroscope.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- end }}

{{/* The names of the api's Service, for [api] allowed_hosts. */}}
{{- define "ferroscope.hosts" -}}
{{- $name := printf "%s-api" (include "ferroscope.fullname" .) -}}
{{- $space := printf "%s.%s" $name .Release.Namespace -}}
{{ list $name $space (printf "%s.svc" $space) (printf "%s.svc.cluster.local" $space) | toJson }}
{{- end }}

{{/* The options of a role: those of all with its own, as JSON: root, role (the name of its values). */}}
{{- define "ferroscope.options" -}}
{{- $options := mustMergeOverwrite (deepCopy .root.Values.config) (deepCopy ((index .root.Values .role).config | default dict)) -}}
{{- $api := $options.api | default dict -}}
{{- $hosts := concat (include "ferroscope.hosts" .root | fromJsonArray) ($api.allowed_hosts | default list) -}}
{{- $_ := set $options "api" (set $api "allowed_hosts" $hosts) -}}
{{ $options | toJson }}
{{- end }}

{{/* One value as ferroscope.conf has it; numbers of YAML would become 1e+06. */}}
{{- define "ferroscope.value" -}}
{{- if kindIs "slice" . }}{{ join "," . }}
{{- else if kindIs "map" . }}{{ $pairs := list }}{{ range $key, $value := . }}{{ $pairs = append $pairs (printf "%s:%v" $key $value) }}{{ end }}{{ join "," $pairs }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) }}{{ int64 . }}
{{- else }}{{ . | toString | trim | replace "\n" "\n    " }}
{{- end }}
{{- end }}

{{/* ferroscope.conf of a role: root, role. */}}
{{- define "ferroscope.conf" -}}
{{- range $section, $options := include "ferroscope.options" . | fromJson }}
[{{ $section }}]
{{- range $option, $value := $options }}
{{ $option }} = {{ include "ferroscope.value" $value }}
{{- end }}
{{ end }}
{{- end }}

{{/* The ConfigMap of a role: root, role, component, namespace. */}}
{{- define "ferroscope.configmap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ include "ferroscope.fullname" .root }}-{{ .component }}
  namespace: {{ .namespace | default .root.Release.Namespace }}
  labels: {{- include "ferroscope.labels" . | nindent 4 }}
data:
  ferroscope.conf: | {{- include "ferroscope.conf" . | nindent 4 }}
{{- end }}

{{/* An account; pods that need its token mount it themselves: root, component, namespace. */}}
{{- define "ferroscope.account" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "ferroscope.fullname" .root }}-{{ .component }}
  namespace: {{ .namespace | default .root.Release.Namespace }}
  labels: {{- include "ferroscope.labels" . | nindent 4 }}
automountServiceAccountToken: false
{{- end }}

{{/* Seconds that a pod has to end: longer than [worker] graceful_timeout plus cleanup: root, role. */}}
{{- define "ferroscope.grace" -}}
{{- $worker := (include "ferroscope.options" . | fromJson).worker | default dict -}}
{{- $timeout := 30 -}}
{{- if hasKey $worker "graceful_timeout" }}{{ $timeout = ceil $worker.graceful_timeout | int }}{{ end -}}
{{ add $timeout 20 }}
{{- end }}

{{- define "ferroscope.budget" -}}
apiVersion: {{ if .root.Capabilities.APIVersions.Has "policy/v1" }}policy/v1{{ else }}policy/v1beta1{{ end }}
kind: PodDisruptionBudget
metadata:
  name: {{ include "ferroscope.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "ferroscope.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "ferroscope.selector" . | nindent 6 }}
{{- end }}
