{{- define "semgate.fullname" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-{{ .Chart.Name }}{{ end -}}
{{- end }}

{{/* A component's name: dict "root" $ "component" "router". */}}
{{- define "semgate.name" -}}
{{ include "semgate.fullname" .root | trunc 50 | trimSuffix "-" }}-{{ .component }}
{{- end }}

{{- define "semgate.selector" -}}
app.kubernetes.io/name: semgate
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "semgate.labels" -}}
{{ include "semgate.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
{{- end }}

{{- define "semgate.digestSecret" -}}
{{ .Values.secrets.digest | default (printf "%s-digest" (include "semgate.fullname" .)) }}
{{- end }}

{{- define "semgate.adminSecret" -}}
{{ .Values.secrets.admin | default (printf "%s-admin" (include "semgate.fullname" .)) }}
{{- end }}

{{/* Ports by component. The status port answers probes and Prometheus; clients cannot fill it. */}}
{{- define "semgate.ports" -}}
{{- if eq .component "router" }}{ http: 8020, admin: 8021, status: 8022 }
{{- else if eq .component "picker" }}{ grpc: 9002, status: 9003, admin: 8021 }
{{- else }}{ http: 8010, status: 8012 }
{{- end }}
{{- end }}
