{{/* What each component consists of: dict "root" $ "component" "router" "values" .Values.router. */}}
{{- define "semgate.workload" -}}
{{- $ports := include "semgate.ports" . | fromYaml }}
{{- $name := include "semgate.name" . }}
{{- $places := ne .component "proxy" }}
{{- $secrets := .root.Values.secrets }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $name }}
  labels: {{- include "semgate.labels" . | nindent 4 }}
data:
  semgate.toml: |
    {{- include "semgate.settings" . | nindent 4 }}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  labels: {{- include "semgate.labels" . | nindent 4 }}
spec:
  {{- if not .values.autoscaling.enabled }}
  replicas: {{ .values.replicas }}
  {{- end }}
  strategy:
    type: RollingUpdate
    rollingUpdate: { maxSurge: 1, maxUnavailable: 0 }
  selector:
    matchLabels: {{- include "semgate.selector" . | nindent 6 }}
  template:
    metadata:
      labels: {{- include "semgate.selector" . | nindent 8 }}
      annotations:
        checksum/settings: {{ include "semgate.settings" . | sha256sum }}  # settings other than the replicas need a restart
        {{- if not .root.Values.monitoring.serviceMonitor.enabled }}
        prometheus.io/scrape: "true"
        prometheus.io/port: {{ $ports.status | quote }}
        prometheus.io/path: /metrics
        {{- end }}
    spec:
      {{- with .root.Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- if $places }}
      serviceAccountName: {{ $name }}
      {{- else }}
      automountServiceAccountToken: false
      {{- end }}
      enableServiceLinks: false  # SEMGATE_ROUTER_SERVICE_HOST and similar variables are not settings
      terminationGracePeriodSeconds: {{ add 15 .values.settings.shutdown_seconds }}  # preStop 5 + shutdown_seconds + a margin
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "semgate.selector" . | nindent 14 }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 10001
        fsGroup: 10001
        seccompProfile: { type: RuntimeDefault }
      {{- with .values.extraPodSpec }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      containers:
        - name: {{ .component }}
          image: "{{ .root.Values.image.repository }}:{{ .root.Values.image.tag | default .root.Chart.AppVersion }}"
          imagePullPolicy: {{ .root.Values.image.pullPolicy }}
          args: [{{ get (dict "router" "route" "picker" "pick" "proxy" "proxy") .component }}, --config, /etc/semgate/config/semgate.toml]
          {{- if and $places $secrets.sharedState }}
          env:
            - name: SEMGATE_SHARED_STATE_URL
              valueFrom: { secretKeyRef: { name: {{ $secrets.sharedState }}, key: url } }
          {{- end }}
          ports:
            {{- range $port, $number := $ports }}
            - { name: {{ $port }}, containerPort: {{ $number }} }
            {{- end }}
          startupProbe:
            httpGet: { path: /healthz, port: status }
            periodSeconds: 2
            failureThreshold: 60
          livenessProbe:
            httpGet: { path: /healthz, port: status }
            periodSeconds: 10
            timeoutSeconds: 5
            failureThreshold: 3
          readinessProbe:
            httpGet: { path: /readyz, port: status }
            periodSeconds: 5
            timeoutSeconds: 3
          lifecycle:
            preStop:  # endpoints are withdrawn while the port is still open
              exec: { command: [sleep, "5"] }
          resources: {{- toYaml .values.resources | nindent 12 }}
          securityContext:
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities: { drop: [ALL] }
          volumeMounts:
            - { name: config, mountPath: /etc/semgate/config, readOnly: true }
            - { name: digest, mountPath: /etc/semgate/digest, readOnly: true }
            {{- if $places }}
            - { name: admin, mountPath: /etc/semgate/admin, readOnly: true }
            {{- if $secrets.clientKeys }}
            - { name: clients, mountPath: /etc/semgate/clients, readOnly: true }
            {{- end }}
            {{- if $secrets.tls }}
            - { name: tls, mountPath: /etc/semgate/tls, readOnly: true }
            {{- end }}
            {{- end }}
            {{- if $secrets.engineKey }}
            - { name: engine-key, mountPath: /etc/semgate/engine, readOnly: true }
            {{- end }}
            - { name: records, mountPath: /var/lib/semgate }
            - { name: scratch, mountPath: /tmp }
      volumes:
        - name: config
          configMap: { name: {{ $name }} }
        - name: digest  # the same for every router: salts and digests must agree, and outlive a restart
          secret: { secretName: {{ include "semgate.digestSecret" .root }}, defaultMode: 0440 }
        {{- if $places }}
        - name: admin
          secret: { secretName: {{ include "semgate.adminSecret" .root }}, defaultMode: 0440 }
        {{- with $secrets.clientKeys }}
        - name: clients
          secret: { secretName: {{ . }}, defaultMode: 0440 }
        {{- end }}
        {{- with $secrets.tls }}
        - name: tls
          secret: { secretName: {{ . }}, defaultMode: 0440 }
        {{- end }}
        {{- end }}
        {{- with $secrets.engineKey }}
        - name: engine-key
          secret: { secretName: {{ . }}, defaultMode: 0440 }
        {{- end }}
        - name: records
          {{- if $places }}
          emptyDir: { sizeLimit: 512Mi }  # decision_files x decision_file_bytes is 256 MiB
          {{- else if .values.traces.claim }}
          persistentVolumeClaim: { claimName: {{ .values.traces.claim }} }
          {{- else }}
          emptyDir: { sizeLimit: {{ .values.traces.size }} }
          {{- end }}
        - name: scratch
          emptyDir: { sizeLimit: 256Mi }
---
# Headless, for Prometheus: each pod by its own address, ready or not.
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}-status
  labels: {{- include "semgate.labels" . | nindent 4 }}
    semgate/scrape: "true"
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {{- include "semgate.selector" . | nindent 4 }}
  ports:
    - { name: status, port: {{ $ports.status }}, targetPort: status }
{{- if .values.autoscaling.enabled }}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata:
  name: {{ $name }}
  labels: {{- include "semgate.labels" . | nindent 4 }}
spec:
  scaleTargetRef: { apiVersion: apps/v1, kind: Deployment, name: {{ $name }} }
  minReplicas: {{ .values.autoscaling.minReplicas }}
  maxReplicas: {{ .values.autoscaling.maxReplicas }}
  metrics:
    - type: Resource
      resource:
        name: cpu
        target: { type: Utilization, averageUtilization: {{ .values.autoscaling.cpuPercent }} }
  behavior:
    scaleDown: { stabilizationWindowSeconds: 300 }  # open streams end first, and an index warms up slowly
{{- end }}
{{- $least := ternary .values.autoscaling.minReplicas .values.replicas .values.autoscaling.enabled }}
{{- if gt (int $least) (int .values.minAvailable) }}
---
# Keeps pods while nodes are drained. With as many pods as must be available it would block the drain, so there is none.
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ $name }}
  labels: {{- include "semgate.labels" . | nindent 4 }}
spec:
  minAvailable: {{ .values.minAvailable }}
  selector:
    matchLabels: {{- include "semgate.selector" . | nindent 6 }}
{{- end }}
{{- if $places }}
---
# May read the EndpointSlices of its own namespace, nothing else.
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  labels: {{- include "semgate.labels" . | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  labels: {{- include "semgate.labels" . | nindent 4 }}
rules:
  - apiGroups: [discovery.k8s.io]
    resources: [endpointslices]
    verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  labels: {{- include "semgate.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ $name }}
subjects:
  - kind: ServiceAccount
    name: {{ $name }}
{{- end }}
{{- if .root.Values.networkPolicy.enabled }}
---
{{- $network := .root.Values.networkPolicy }}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ $name }}
  labels: {{- include "semgate.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "semgate.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - ports:
        {{- range $port, $number := omit $ports "status" "admin" }}
        - { protocol: TCP, port: {{ $number }} }
        {{- end }}
      {{- with ternary $network.dataPlane $network.clients (eq .component "picker") }}
      from: {{- toYaml . | nindent 8 }}
      {{- end }}
    - from:
        - namespaceSelector:
            matchLabels: { kubernetes.io/metadata.name: {{ $network.monitoringNamespace }} }
      ports:
        - { protocol: TCP, port: {{ $ports.status }} }
  egress:
    - to:
        - podSelector:
            matchLabels: {{- toYaml $network.engines.labels | nindent 14 }}
      ports:
        - { protocol: TCP, port: 8000 }
        {{- if $places }}
        {{- range compact (list .values.settings.events_port .values.settings.replay_port .values.settings.donors_port) }}
        - { protocol: TCP, port: {{ . }} }
        {{- end }}
        {{- end }}
    - ports:
        - { protocol: UDP, port: 53 }
        - { protocol: TCP, port: 53 }
        {{- if $places }}
        {{- range $network.apiServerPorts }}
        - { protocol: TCP, port: {{ . }} }
        {{- end }}
        {{- end }}
    {{- with $network.extraEgress }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}
{{- end }}

{{/* semgate.toml. JSON of numbers, words, flags and lists of words is TOML. */}}
{{- define "semgate.settings" -}}
{{- $ports := include "semgate.ports" . | fromYaml -}}
{{- $places := ne .component "proxy" -}}
{{- $secrets := .root.Values.secrets -}}
{{- $own := dict "host" "0.0.0.0" "port" ($ports.http | default $ports.grpc) "status_host" "0.0.0.0" "status_port" $ports.status "digest_secret_file" "/etc/semgate/digest/secret" -}}
{{- if $places -}}
{{- $_ := set $own "routing_output_dir" "/var/lib/semgate/routing" -}}
{{- $_ := set $own "admin_host" "0.0.0.0" -}}
{{- $_ := set $own "admin_port" $ports.admin -}}
{{- $_ := set $own "admin_api_key_file" "/etc/semgate/admin/key" -}}
{{- if $secrets.clientKeys -}}{{- $_ := set $own "client_keys_file" "/etc/semgate/clients/tenants.toml" -}}{{- end -}}
{{- if $secrets.tls -}}
{{- $_ := set $own "tls_cert_file" "/etc/semgate/tls/tls.crt" -}}
{{- $_ := set $own "tls_key_file" "/etc/semgate/tls/tls.key" -}}
{{- end -}}
{{- else -}}
{{- $_ := set $own "trace_output_dir" "/var/lib/semgate/traces" -}}
{{- end -}}
{{- if $secrets.engineKey -}}{{- $_ := set $own "upstream_api_key_file" "/etc/semgate/engine/key" -}}{{- end -}}
[{{ .component }}]
{{- range $key, $value := merge $own .values.settings }}
{{ $key }} = {{ toJson $value }}
{{- end }}
{{- end }}
