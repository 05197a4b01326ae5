{{/* What all pods have in common: root, role, component, token (whether it calls the API server), spread, grace. */}}
{{- define "ferroscope.pod" -}}
{{- $values := index .root.Values .role -}}
serviceAccountName: {{ include "ferroscope.fullname" .root }}-{{ .component }}
automountServiceAccountToken: {{ .token | default false }}
# The environment variables of the Service kubernetes are there without it.
enableServiceLinks: false
terminationGracePeriodSeconds: {{ .grace | default (include "ferroscope.grace" .) }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if or .spread $values.tolerations }}
tolerations:
{{- if .spread }}
- {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
- {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 5}
{{- end }}
{{- with $values.tolerations }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- if $values.affinity }}
affinity: {{- toYaml $values.affinity | nindent 2 }}
{{- else if eq (.spread | default "") "preferred" }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector:
          matchLabels: {{- include "ferroscope.selector" . | nindent 12 }}
{{- else if eq (.spread | default "") "required" }}
affinity:
  podAntiAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
    - topologyKey: kubernetes.io/hostname
      labelSelector:
        matchLabels: {{- include "ferroscope.selector" . | nindent 10 }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- $own := dict "labelSelector" (dict "matchLabels" (include "ferroscope.selector" $ | fromYaml)) }}
{{- range . }}
- {{ toYaml (merge (deepCopy .) $own) | nindent 2 | trim }}
{{- end }}
{{- end }}
securityContext:
{{- if eq .role "pxeFilter" }}
  # Capabilities of a container reach only processes of root.
  runAsUser: 0
  runAsGroup: 0
{{- else }}
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
{{- end }}
  seccompProfile: {type: RuntimeDefault}
volumes:
- name: configuration
  configMap: {name: {{ include "ferroscope.fullname" .root }}-{{ .component }}}
- name: temporary
  emptyDir: {}
{{- if and (eq .role "api") .root.Values.users.secret }}
- name: users
  secret: {secretName: {{ .root.Values.users.secret }}, defaultMode: 0440}
{{- end }}
{{- range .root.Values.secretFiles }}
- name: secret-{{ .secret | replace "." "-" }}
  secret: {secretName: {{ .secret }}, defaultMode: 0440}
{{- end }}
{{- end }}

{{/* What all containers have in common: root, role. */}}
{{- define "ferroscope.container" -}}
image: {{ include "ferroscope.image" .root | quote }}
{{- with .root.Values.image.pullPolicy }}
imagePullPolicy: {{ . }}
{{- end }}
envFrom:
- secretRef: {name: {{ .root.Values.database.secret }}}
resources: {{- toYaml (index .root.Values .role).resources | nindent 2 }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- if eq .role "pxeFilter" }}
    # nftables; iptables, which opens a raw socket; and SIGHUP to a dnsmasq of another user (which also needs hostPID).
    add: [NET_ADMIN, NET_RAW, KILL]
{{- end }}
volumeMounts:
- {name: configuration, mountPath: /etc/ferroscope, readOnly: true}
- {name: temporary, mountPath: /tmp}
{{- if and (eq .role "api") .root.Values.users.secret }}
- {name: users, mountPath: /etc/ferroscope-users, readOnly: true}
{{- end }}
{{- range .root.Values.secretFiles }}
- {name: secret-{{ .secret | replace "." "-" }}, mountPath: {{ .path }}, readOnly: true}
{{- end }}
{{- end }}

{{/* The annotations of a pod: a changed configuration starts new pods: root, role. */}}
{{- define "ferroscope.annotations" -}}
checksum/configuration: {{ include "ferroscope.conf" . | sha256sum }}
{{- with (index .root.Values .role).annotations }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/*
A Deployment of a role that listens for Prometheus only, with its account, configuration and budget: root, role,
component, token, spread, surge (pods of an upgrade that are started before others end).
*/}}
{{- define "ferroscope.deployment" -}}
{{ include "ferroscope.account" . }}
---
{{ include "ferroscope.configmap" . }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "ferroscope.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "ferroscope.labels" . | nindent 4 }}
spec:
  replicas: {{ (index .root.Values .role).replicas }}
  selector:
    matchLabels: {{- include "ferroscope.selector" . | nindent 6 }}
  strategy:
    rollingUpdate: {maxSurge: {{ .surge }}, maxUnavailable: {{ sub 1 .surge }}}
  template:
    metadata:
      labels: {{- include "ferroscope.selector" . | nindent 8 }}
      annotations: {{- include "ferroscope.annotations" . | nindent 8 }}
    spec:
      {{- include "ferroscope.pod" . | nindent 6 }}
      containers:
      - name: {{ .component }}
        args: [{{ .component }}]
        {{- include "ferroscope.container" . | nindent 8 }}
        ports:
        - {name: metrics, containerPort: {{ include "ferroscope.metrics" . }}, protocol: TCP}
        # Without its database, or the API server, it works on when that is back; it must not be restarted meanwhile.
        startupProbe:
          tcpSocket: {port: metrics}
          periodSeconds: 2
          failureThreshold: 60
        # Without it, Kubernetes 1.20 sees a minute later that the pod is ready.
        readinessProbe:
          tcpSocket: {port: metrics}
          periodSeconds: 2
        livenessProbe:
          httpGet: {path: /metrics, port: metrics}
          periodSeconds: 10
          timeoutSeconds: 10
          failureThreshold: 6
---
{{ include "ferroscope.budget" . }}
{{- end }}

{{/* The port of a role's metrics: root, role. */}}
{{- define "ferroscope.metrics" -}}
{{- ((include "ferroscope.options" . | fromJson).metrics | default dict).port | default 9105 | int -}}
{{- end }}
