{{- define "corral.labels" -}}
app.kubernetes.io/name: corral
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "corral.name" -}}
{{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}
